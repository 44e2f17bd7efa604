"""The operator's machine: `fab` as a person types it, with its files in a test's folder."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.control.own_state import state_of
from core.inventory import load
from deploy.converge.code import ReleaseChoice
from deploy.converge.desired import Machines
from tests.deploy.playing import eventually
from tests.lab.lab import Lab
from tests.lab.places import PROJECT

FAB = Path(sys.executable).with_name("fab")
LONGEST_SECONDS = 900.0
"""Longer than any command takes on a machine with two busy cores; a command that hangs fails its
test."""
LAST_CHARACTERS = 6000


@dataclass(frozen=True)
class Done:
    """A finished command."""

    words: Sequence[str]
    code: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        """Everything it said."""
        return self.stdout + self.stderr

    def json(self) -> dict[str, Any]:
        """The one object that it printed."""
        value: dict[str, Any] = json.loads(self.stdout)
        return value


class Running:
    """A running command; its output goes to a file."""

    def __init__(self, process: subprocess.Popen[bytes], words: Sequence[str], said: Path) -> None:
        self.process = process
        self._words = words
        self._said = said

    @property
    def text(self) -> str:
        """Its output so far."""
        return self._said.read_text(errors="replace")

    def wait_for(self, part: str, deadline_seconds: float = 300.0) -> None:
        """Returns once its output has this; fails the test if it ends first."""
        eventually(
            lambda: part in self.text or self.process.poll() is not None,
            f"says {part!r}",
            deadline_seconds,
        )
        if part not in self.text:
            pytest.fail(
                f"{self._words} ended with {self.process.returncode} before it said"
                f" {part!r}:\n{self._last}"
            )

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()

    def end(self, code: int, deadline_seconds: float = LONGEST_SECONDS) -> Done:
        """Waits for its end."""
        self.process.wait(deadline_seconds)
        done = Done(self._words, self.process.returncode, self.text, "")
        if done.code != code:
            pytest.fail(
                f"{self._words} ended with {done.code}, not with {code}:\n{self._last}",
                pytrace=False,
            )
        return done

    @property
    def _last(self) -> str:
        return self.text[-LAST_CHARACTERS:]


class Operator:
    """A person who types `fab` in a folder of their own, with the key to the lab's nodes."""

    def __init__(
        self,
        lab: Lab,
        folder: Path,
        *,
        project: Path = PROJECT,
        inventory: Path = PROJECT / "inventory.yaml",
    ) -> None:
        """With a copy of `inventory` in `folder`, and the `fab` of the checkout `project`."""
        folder.mkdir(parents=True, exist_ok=True)
        self.lab = lab
        self.folder = folder
        self.inventory = folder / "inventory.yaml"
        self._project = project
        if inventory != self.inventory:
            shutil.copyfile(inventory, self.inventory)

    @property
    def tool(self) -> list[str]:
        """The command of the checkout's `fab` from any folder."""
        return [str(FAB), "-r", str(self._project)]

    def fab(
        self, *words: str, code: int | None = 0, timeout_seconds: float = LONGEST_SECONDS
    ) -> Done:
        """Run it to its end; fail the test when it ends with another code (None: any is right)."""
        ended = subprocess.run(
            self._command(words),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
        done = Done(words, ended.returncode, ended.stdout, ended.stderr)
        if code is not None and done.code != code:
            said = f"{done.stdout[-LAST_CHARACTERS:]}\n--- stderr\n{done.stderr[-LAST_CHARACTERS:]}"
            pytest.fail(
                f"fab {' '.join(words)} ended with {done.code}, not with {code}:\n{said}",
                pytrace=False,
            )
        return done

    @contextmanager
    def running(self, *words: str) -> Iterator[Running]:
        """Runs it beside the test, and kills it if it still runs at the end."""
        said = self.folder / f"said-{time.monotonic_ns()}.log"
        with said.open("wb") as file:
            process = subprocess.Popen(
                self._command(words),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        try:
            yield Running(process, words, said)
        finally:
            process.kill()
            process.wait()

    def wish(self) -> Machines:
        """The desired state: the inventory, and the release of the checkout."""
        return Machines(
            load(self.inventory, check_interfaces=False), ReleaseChoice.of_this_checkout()
        )

    @property
    def _state(self) -> Path:
        return state_of(self.inventory, self.wish().inventory.cluster)

    def known_hosts(self) -> Path:
        """The pinned keys."""
        return self._state / "known_hosts"

    def recap(self) -> dict[str, Any]:
        """The newest one."""
        newest = max((self._state / "deployments").glob("*.json"), key=lambda path: path.name)
        value: dict[str, Any] = json.loads(newest.read_text())
        return value

    def gives(self, line: str, role: str) -> None:
        """The worker's node of this line of the inventory gets one role more."""
        text = self.inventory.read_text()
        assert line in text
        self.inventory.write_text(text.replace(line, line.replace("[worker]", f"[worker, {role}]")))

    def status(self, code: int = 0) -> dict[str, dict[str, Any]]:
        """The rows of `status`, by node."""
        return {
            row["node"]: row
            for row in self.fab("deploy", "status", "--json", code=code).json()["nodes"]
        }

    def well(self) -> bool:
        """Whether `status` finds all nodes healthy."""
        return self.fab("deploy", "status", "--json", code=None).code == 0

    def newest(self, pattern: str) -> Path:
        """The file of this name in the newest run of its kind that was fetched."""
        return max(self.folder.glob(f"runs/{pattern}"), key=lambda path: path.parent.name)

    def read(self, pattern: str) -> dict[str, Any]:
        """The newest JSON file of this name."""
        value: dict[str, Any] = json.loads(self.newest(pattern).read_text())
        return value

    def result(self) -> dict[str, Any]:
        """The result of the newest training."""
        return self.read("*-train*/result.json")

    def _command(self, words: Sequence[str]) -> list[str]:
        # A flag belongs to the action before it, and all of them take --set but `init`; behind --
        # is a program's.
        if "--" in words:
            own = words.index("--")
        else:
            own = len(words)
        return [*self.tool, *words[:own], "--set", f"ssh.key={self.lab.places.key}", *words[own:]]
