"""What the fixtures `fab` and `processes` of the tests are and give."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy.common.project import ROOT
from tests.hang import HANG_SECONDS

PROGRAM = (str(Path(sys.executable).with_name("fab")), "-r", str(ROOT))
"""`fab`, as the beginning of a process's words."""


@dataclass(frozen=True)
class Outcome:
    """What a person and a script see of one call."""

    code: int
    stdout: str
    stderr: str

    def says(self, *words: str, code: int = 0) -> "Outcome":
        """It ends with `code`, and standard output has these words."""
        assert self.code == code, self
        assert [each for each in words if each not in self.stdout] == [], self
        return self

    def warns(self, *words: str, code: int = 0) -> "Outcome":
        """It ends with `code`, and standard error has these words."""
        assert self.code == code, self
        assert [each for each in words if each not in self.stderr] == [], self
        return self

    def refuses(self, words: str, code: int = 2) -> "Outcome":
        """It ends with `code` and one line, which has these words."""
        assert len(self.stderr.strip().splitlines()) == 1, self
        assert "Traceback" not in self.stderr, self
        return self.warns(words, code=code)

    def json(self, code: int = 0) -> Any:
        """It ends with `code`, and standard output is this JSON."""
        assert self.code == code, self
        return json.loads(self.stdout)


def as_process(line: str, folder: Path, **more: Any) -> Outcome:
    """Type `fab LINE` in the folder, as a process of its own."""
    done = subprocess.run(
        [*PROGRAM, *shlex.split(line)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        **more,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


Fab = Callable[[str], Outcome]


@dataclass
class Processes:
    """Processes of other rooms that end at once, as `code` says."""

    code: int = 0
    commands: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, command: tuple[str, ...], **_: Any) -> "subprocess.CompletedProcess[str]":
        self.commands.append(command[2:])
        return subprocess.CompletedProcess(command, self.code)
