"""`python -m core.data.fetch NAME`: a published set into the user's cache folder.

It comes from the UCI repository.

A training finds it there by itself. `FILE.sha256` beside the file keeps its hash, which every later
use compares. What cannot be had is one line on standard error.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

from core.data.archive import file_digest, noted_digest
from core.data.fetch import SETS
from core.data.fetch.download import PublishedSet, bring
from core.data.recordings import Report
from core.ground.errors import ClusterError, DataError, ExitCode, UsageError
from core.ground.files import user_cache
from core.logs import say
from core.logs.bars import bar

HEXADECIMAL = frozenset("0123456789abcdef")


def fetch(published: PublishedSet, path: Path, report: Report) -> str:
    """Bring the set's file to `path`, and return a line that says how it is known to be right.

    One that is there already is compared with its hash and kept. Raises ClusterError.
    """
    if path.exists():
        return _line_of_existing(path, published, report)
    bring(published, path, report)
    return f"SHA-256 {published.sha256}, as pinned"


def _line_of_existing(path: Path, published: PublishedSet, report: Report) -> str:
    """Compare a file with the hash beside it, else with the published one. Raises DataError."""
    digest = file_digest(path, report)
    expected, where = noted_digest(path) or (published.sha256, "the published one")
    if expected != digest:
        raise DataError(
            f"{path}: is there, with SHA-256 {digest}, expected {expected} ({where}); remove it to"
            " fetch it again, or fetch into another folder with --out"
        )
    return f"is there already; SHA-256 {digest}, as expected"


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch, and say where it lies."""
    parser = argparse.ArgumentParser(prog="python -m core.data.fetch", description=__doc__)
    parser.add_argument("name", help=f"one of {', '.join(SETS)}")
    parser.add_argument(
        "--out", type=Path, help="the folder; else one of the set's name in the user's cache"
    )
    parser.add_argument(
        "--sha256", help="the hash that the fetched file must have, in the place of the pinned one"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    command_line = parser.parse_args(arguments)
    try:
        published_set = _published_set(command_line.name, command_line.sha256)
        folder = command_line.out or user_cache() / published_set.name
        path = folder / published_set.file
        with bar(quiet=command_line.quiet) as report:
            line = fetch(published_set, path, report)
    except ClusterError as problem:
        say(problem, error=True)
        return int(problem.exit_code)
    except KeyboardInterrupt:
        say(f"interrupted: `fab data fetch {command_line.name}` continues from here", error=True)
        return ExitCode.CANCELLED
    say(f"{path}: {line}")
    if command_line.out is None:
        found_by_itself = "finds it by itself"
    else:
        found_by_itself = f"--data {quote(str(path))} trains on it"
    say(f"next: fab data show {quote(str(path))}; fab job train {found_by_itself}")
    return ExitCode.DONE


def _published_set(name: str, sha256: str | None) -> PublishedSet:
    if name not in SETS:
        raise UsageError(
            f"{name!r:.40}: expected {', '.join(SETS)}; bring other recordings yourself"
            " (docs/data.md)"
        )
    if sha256 is None:
        return SETS[name]
    text = sha256.lower()
    if len(text) != 64 or not HEXADECIMAL.issuperset(text):
        raise UsageError(f"--sha256: expected 64 hexadecimal digits, got {sha256!r:.80}")
    # A hash of one's own may be of another edition of the file, of another size.
    return replace(SETS[name], sha256=text, size=None)


if __name__ == "__main__":
    sys.exit(main())
