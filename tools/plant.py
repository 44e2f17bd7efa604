"""Plants mutants of the product's guards, and sees that a test kills each.

`python -m tools.plant` takes those of tests/mutants/survivors.yaml, `python -m tools.plant gate.py`
those with this word in their file, test or effect. A mutant changes one guard in a temporary copy
of the tree, never in place, and the test that it names runs there. Before, all these tests must
pass in the copy as it is. The exit status is 1 if a mutant survives.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

PROJECT = Path(__file__).resolve().parents[1]
MUTANTS = PROJECT / "tests/mutants/survivors.yaml"
BESIDE = (".venv", ".cache")
"""What git does not know and tests need: links in the copy."""

LINE = 400
"""Columns: pytest cuts what it says of a failure at the end of the line."""

PASSED, FAILED = 0, 1
"""What pytest exits with."""


@dataclass(frozen=True)
class Mutant:
    """One broken guard, and the pytest id of the test that fails with it."""

    effect: str
    file: str
    old: str
    new: str
    test: str

    def planted(self, text: str) -> str:
        """Return the file's text with the guard broken.

        Raises ValueError unless the guard stands there exactly once.
        """
        times = text.count(self.old)
        if times != 1:
            raise ValueError(
                f"{self.file}: expected once, found {times} times: {self.old!r}; write the mutant"
                " again for the code of now"
            )
        return text.replace(self.old, self.new)

    def has(self, word: str) -> bool:
        """Return whether its file, test or effect contains the word."""
        return any(word in text for text in (self.file, self.test, self.effect))


def read_mutants(path: Path = MUTANTS) -> list[Mutant]:
    """Return those of a file, in its order."""
    return [Mutant(**fields) for fields in yaml.safe_load(path.read_text(encoding="utf-8"))]


def verdict(exit_status: int) -> str:
    """Return what pytest's exit status says of a mutant."""
    if exit_status == FAILED:
        return "killed"
    if exit_status == PASSED:
        return "SURVIVED"
    return f"NOT TRIED: pytest exits with {exit_status}"


def summary(output: str) -> list[str]:
    """Return pytest's own lines of what failed."""
    return [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]


def copy_tree(source: Path, target: Path) -> None:
    """Copy what git tracks or would track, and link what the tests need beside it."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=source, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (source / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, target / name, follow_symlinks=False)
    for name in BESIDE:
        (target / name).symlink_to(source / name)


def run_tests(tree: Path, tests: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run these tests in the copy, without compiled files: a mutant may be as long as the guard."""
    words = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": str(LINE)}
    return subprocess.run(
        words, cwd=tree, env=environment, capture_output=True, text=True, check=False
    )


def main(words: Sequence[str]) -> int:
    """Plant the mutants with one of these words, or all, one after another."""
    mutants = [
        mutant for mutant in read_mutants() if not words or any(mutant.has(word) for word in words)
    ]
    if not mutants:
        print(f"expected words of {MUTANTS.name}, found none with {' '.join(words)}")
        return 2
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        tree = Path(folder)
        copy_tree(PROJECT, tree)
        before = run_tests(tree, sorted({mutant.test for mutant in mutants}))
        if before.returncode != PASSED:
            print(f"the tests do not pass without a mutant:\n{before.stdout}{before.stderr}")
            return 2
        verdicts = [_tried(tree, mutant) for mutant in mutants]
    killed = verdicts.count(verdict(FAILED))
    print(f"{killed} of {len(mutants)} killed")
    return int(killed < len(mutants))


def _tried(tree: Path, mutant: Mutant) -> str:
    path = tree / mutant.file
    whole = path.read_text(encoding="utf-8")
    path.write_text(mutant.planted(whole), encoding="utf-8")
    done = run_tests(tree, [mutant.test])
    path.write_text(whole, encoding="utf-8")
    said = verdict(done.returncode)
    print(
        f"{said}: {mutant.file}: {mutant.effect}", *summary(done.stdout), sep="\n    ", flush=True
    )
    return said


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
