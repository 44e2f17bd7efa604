"""Nodes that are this machine, whose streams break or whose answers are given."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from deploy.cluster.connector import NodeUnreachableError
from deploy.cluster.fleet import Local
from deploy.common.command_line import Words


class LocalShell(Local):
    """`breaks` is how many streams break after one line."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__("rpi11")
        self._environment |= environment
        self.breaks = 0

    def stream(
        self,
        words: Words,
        on_line: Callable[[str], None],
        *,
        root: bool = False,
        user: str | None = None,
        stop: threading.Event | None = None,
    ) -> int:
        def breaking(line: str) -> None:
            on_line(line)
            if self.breaks:
                self.breaks -= 1
                raise NodeUnreachableError(f"{self.name}: the connection broke")

        return super().stream(words, breaking, root=root, user=user, stop=stop)


class Heard(Local):
    """Notes the commands that come; one with a key of `answers` in it prints or raises that."""

    def __init__(self, name: str = "rpi11", answers: Mapping[str, str | Exception] = {}) -> None:
        super().__init__(name)
        self.commands: list[str] = []
        self._answers = answers

    def run(self, command_line: Any, **how: Any) -> Any:
        self.commands.append(" ".join(map(str, command_line)))
        for part, answer in self._answers.items():
            if part in self.commands[-1]:
                if isinstance(answer, Exception):
                    raise answer
                return super().run(["printf", "%s", answer])
        return super().run(command_line, **how)

    def heard(self, part: str) -> bool:
        return any(part in command for command in self.commands)
