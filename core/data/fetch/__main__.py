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

from core.data.archive import file_digest
from core.data.fetch.download import Wanted, download
from core.data.fetch.sets import SETS, PublishedSet
from core.data.fetch.unpack import unpack
from core.data.recordings import Report
from core.ground.errors import ClusterError, DataError, ExitCode, UsageError
from core.ground.files import atomic_write, user_cache
from core.logs import say
from core.logs.bars import bar

HEXADECIMAL = frozenset("0123456789abcdef")
BESIDE = ".sha256"


def fetch(wanted: PublishedSet, folder: Path, report: Report) -> tuple[Path, str]:
    """The set's file below `folder`, and a line that says how it is known to be right.

    One that is there already is compared with its hash and kept. Raises ClusterError.
    """
    path = folder / wanted.file
    if wanted.member is None:
        archive = path
    else:
        archive = folder / f"{wanted.name}.zip"
    if path.exists():
        line = _there(path, wanted, report)
        return path, line if archive == path else line + _ended_now(archive, path, wanted, report)
    found = _of_archive(archive, wanted, report)
    if wanted.member is not None:
        unpack(archive, wanted.member, path, wanted.most_unpacked, report)
    _write_hash(path, found if wanted.member is None else file_digest(path, report))
    if archive != path:
        archive.unlink(missing_ok=True)
    if wanted.sha256 is not None:
        how = "as pinned"
    else:
        how = "no hash is known: this one is pinned from now on"
    return path, f"SHA-256 {found}{'' if wanted.member is None else ' of the archive'}, {how}"


def _of_archive(archive: Path, wanted: PublishedSet, report: Report) -> str:
    """Its hash; an archive that an interrupted unpacking left is not fetched twice.

    Raises DataError for a file of that name that is not ours.
    """
    if archive.exists():
        found = file_digest(archive, report)
        if wanted.sha256 not in (None, found):
            raise DataError(
                f"{archive}: is there, with SHA-256 {found}, and the fetch writes there; expected"
                f" {wanted.sha256}: remove it, or fetch into another folder with --out"
            )
        return found
    return download(
        Wanted(wanted.url, wanted.sha256, wanted.size, wanted.most_bytes), archive, report
    )


def _there(path: Path, wanted: PublishedSet, report: Report) -> str:
    found = file_digest(path, report)
    beside = path.with_name(path.name + BESIDE)
    if wanted.member is None:
        expected = wanted.sha256
    else:
        expected = None
    if beside.exists():
        words = beside.read_text(encoding="utf-8", errors="replace").split()
        if words:
            expected = words[0].lower()
        else:
            expected = "nothing"
    if expected is not None and found != expected:
        if beside.exists():
            where = beside.name
        else:
            where = "the published one"
        raise DataError(
            f"{path}: is there, with SHA-256 {found}, expected {expected} ({where}); remove it to"
            " fetch it again, or fetch into another folder with --out"
        )
    return f"is there already; SHA-256 {found}, {'as expected' if expected else 'unknown here'}"


def _ended_now(archive: Path, path: Path, wanted: PublishedSet, report: Report) -> str:
    """Finish a fetch that was killed when `path` was unpacked.

    Returns the end of a line about it; empty, with nothing done, where no such archive is left.
    """
    if not archive.exists() or file_digest(archive, report) != wanted.sha256:
        return ""
    if not path.with_name(path.name + BESIDE).exists():
        _write_hash(path, file_digest(path, report))
    archive.unlink()
    return "; the archive that an interrupted fetch left is removed"


def _write_hash(path: Path, found: str) -> None:
    atomic_write(path.with_name(path.name + BESIDE), f"{found}  {path.name}\n".encode())


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
    given = parser.parse_args(arguments)
    try:
        wanted = _wanted(given.name, given.sha256)
        folder = given.out or user_cache() / wanted.name
        with bar(quiet=given.quiet) as report:
            path, line = fetch(wanted, folder, report)
    except ClusterError as problem:
        say(problem, error=True)
        return int(problem.exit_code)
    except KeyboardInterrupt:
        say(f"interrupted: `fab data fetch {given.name}` continues from here", error=True)
        return ExitCode.CANCELLED
    say(f"{path}: {line}")
    if given.out is None:
        found_by_itself = "finds it by itself"
    else:
        found_by_itself = f"--data {quote(str(path))} trains on it"
    say(f"next: fab data show {quote(str(path))}; fab job train {found_by_itself}")
    return ExitCode.DONE


def _wanted(name: str, sha256: str | None) -> PublishedSet:
    if name not in SETS:
        raise UsageError(
            f"{name!r:.40}: expected {', '.join(SETS)}; other recordings are yours to bring"
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
