"""A page of docs/how-to-add: its changes and commands, done in a copy of the project."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.common.project import ROOT

PYTHON = ".venv/bin/python "
COMMAND_SECONDS = 240.0


@dataclass(frozen=True)
class Change:
    """One block of a diff: in the file at `path`, the lines `before` become the lines `after`."""

    path: str
    before: str
    after: str

    def apply(self, project: Path) -> None:
        """Raises AssertionError unless the old lines stand in the file exactly once."""
        file = project / self.path
        if self.before:
            text = file.read_text(encoding="utf-8")
        else:
            text = ""
        if self.before:
            assert text.count(self.before) == 1, (
                f"{self.path} has {text.count(self.before)} times:\n{self.before}"
            )
        else:
            assert not file.exists(), f"{self.path} is no new file"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            text.replace(self.before, self.after) if self.before else self.after, encoding="utf-8"
        )


def changes(page: str) -> Iterator[Change]:
    """Return the page's blocks ```diff: a line `--- FILE`, then a diff; `@@` begins a place."""
    for block in re.findall(r"^```diff\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        head, _, body = block.partition("\n")
        assert head.startswith("--- "), head
        for hunk in re.split(r"^@@.*\n", body, flags=re.MULTILINE):
            lines = hunk.splitlines(keepends=True)
            assert all(line[0] in " +-\n" for line in lines), hunk
            before = "".join(line[1:] or line for line in lines if line[0] != "+")
            after = "".join(line[1:] or line for line in lines if line[0] != "-")
            yield Change(head.removeprefix("--- "), before, after)


def commands(page: str) -> list[str]:
    """The commands of a page that this Python runs, without their prompt."""
    blocks = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    lines = [
        line.removeprefix("$ ")
        for block in blocks
        for line in block.splitlines()
        if line.startswith("$ ")
    ]
    return [line.removeprefix(PYTHON) for line in lines if line.startswith(PYTHON)]


def copy_of_the_project(folder: Path) -> Path:
    """The files that git knows or would add, below `folder`."""
    command = [
        "git",
        "-C",
        str(ROOT),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    listing = subprocess.run(command, check=True, capture_output=True, text=True)
    for name in set(listing.stdout.split("\0")) - {""}:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def run(
    project: Path, words: str, programs: Sequence[Path] = ()
) -> subprocess.CompletedProcess[str]:
    """`python WORDS` in the copy, with the folders of these programs on PATH."""
    path = os.pathsep.join([*(str(program.parent) for program in programs), os.environ["PATH"]])
    return subprocess.run(
        [sys.executable, *words.split()],
        cwd=project,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
