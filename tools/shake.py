"""Runs the test files of a change several times on a busy machine: `make shake`.

    python -m tools.shake [--base COMMIT | --since DATE] [--rounds 3] [--all] [FILES...]
    python -m tools.shake --whole [--rounds 3]

Without FILES it takes those that differ from where the branch left `main`, what is not committed
included. Two processes keep the processors busy, and the tests are nicer than they are: a test that
waits on luck fails. By default it runs the fast tier; `--all` runs every test of the files.
`--whole` runs every file of the fast tier, two at a time and no nicer than the two: nicer, it takes
an hour a round.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath

BUSY = 2
NICE = "10"
WHOLE = ["--tier=fast", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
NOTHING_COLLECTED = 5
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

LOOP = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"
"""Ends with this process, whatever ends it."""


def test_files(names: Sequence[str]) -> list[str]:
    """Return those of the names that are files of tests here, in order and each once."""
    return sorted(
        {
            name
            for name in names
            if PurePath(name).match("test_*.py")
            and PurePath(name).parts[0] == "tests"
            and Path(name).exists()
        }
    )


def failures_of(output: str, code: int) -> list[str]:
    """Return the tests that failed, as pytest's summary has them, or how pytest itself did."""
    lines = output.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if failed or code in (0, NOTHING_COLLECTED):
        return failed
    return [f"pytest ended with exit code {code}: {lines[-1] if lines else 'no output'}"]


def changed(base: str | None, since: str | None) -> list[str]:
    """Return the names of the files that differ from `base`, or from the last state before `since`.

    Files that git does not know yet are among them.
    """
    if since is not None:
        start = _git("rev-list", "-1", f"--before={since}", "HEAD").strip() or EMPTY_TREE
    else:
        start = _git("merge-base", base or "main", "HEAD").strip()
    names = _git("diff", "--name-only", "-z", start).split("\0")
    return names + _git("ls-files", "-z", "--others", "--exclude-standard").split("\0")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


@contextmanager
def busy(count: int = BUSY) -> Iterator[None]:
    """Keep so many processors busy."""
    loops = [subprocess.Popen([sys.executable, "-c", LOOP, str(os.getpid())]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
        for loop in loops:
            loop.wait()


def shaken(words: Sequence[str], rounds: int, nice: str = NICE) -> dict[int, list[str]]:
    """Return the failures of each round of pytest."""
    command = ["nice", "-n", nice, sys.executable, "-m", "pytest", "-q", "-rfE", *words]
    failures = {}
    for number in range(1, rounds + 1):
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        failures[number] = failures_of(ran.stdout, ran.returncode)
        print(f"shake: round {number} of {rounds}: {len(failures[number])} failed", flush=True)
        if failures[number]:
            print(ran.stdout, flush=True)
    return failures


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if any test failed in any round."""
    parser = argparse.ArgumentParser(prog="python -m tools.shake", description=__doc__)
    of_what = parser.add_mutually_exclusive_group()
    of_what.add_argument("--base", help="the files that differ from this commit; default main")
    of_what.add_argument("--since", help="the files changed since then, e.g. '1 week ago'")
    of_what.add_argument("--whole", action="store_true", help="every file of the fast tier")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--all", action="store_true", help="not the fast tier alone")
    parser.add_argument("files", nargs="*", metavar="FILES")
    options = parser.parse_args(arguments)
    if options.whole:
        words, nice = WHOLE, "0"
    else:
        files = test_files(options.files or changed(options.base, options.since))
        if not files:
            print("shake: no file of tests changed")
            return 0
        tier = ["-m", ""] if options.all else ["--tier=fast"]
        words, nice = [*tier, *files], NICE
    with busy():
        failures = shaken(words, options.rounds, nice)
    for number, failed in failures.items():
        for line in failed:
            print(f"round {number}: {line}")
    return int(any(failures.values()))


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parents[1])
    sys.exit(main())
