"""A node that is this machine, whose streams can break."""

import threading
from collections.abc import Callable, Mapping

from deploy.cluster.connector import NodeUnreachableError
from deploy.cluster.local import Local
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
