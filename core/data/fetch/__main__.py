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
from core.data.fetch import SETS, PublishedSet
from core.data.fetch.download import RemoteFile, download, unpack
from core.data.recordings import Report
from core.ground.errors import ClusterError, DataError, ExitCode, UsageError
from core.ground.files import atomic_write, user_cache
from core.logs import say
from core.logs.bars import bar

HEXADECIMAL = frozenset("0123456789abcdef")
BESIDE = ".sha256"


def fetch(published_set: PublishedSet, folder: Path, report: Report) -> tuple[Path, str]:
    """Return the set's file below `folder`, and a line that says how it is known to be right.

    One that is there already is compared with its hash and kept. Raises ClusterError.
    """
    path = folder / published_set.file
    if published_set.member is None:
        archive = path
    else:
        archive = folder / f"{published_set.name}.zip"
    if path.exists():
        line = _line_of_existing(path, published_set, report)
        return path, line if archive == path else line + _finish_interrupted(
            archive, path, published_set, report
        )
    digest = _of_archive(archive, published_set, report)
    if published_set.member is not None:
        unpack(archive, published_set.member, path, published_set.most_unpacked, report)
    _write_hash(path, digest if published_set.member is None else file_digest(path, report))
    if archive != path:
        archive.unlink(missing_ok=True)
    if published_set.sha256 is not None:
        how = "as pinned"
    else:
        how = "no hash is known: this one is pinned from now on"
    return (
        path,
        f"SHA-256 {digest}{'' if published_set.member is None else ' of the archive'}, {how}",
    )


def _of_archive(archive: Path, published_set: PublishedSet, report: Report) -> str:
    """Return its hash; an archive that an interrupted unpacking left is not fetched twice.

    Raises DataError for a file of that name that is not ours.
    """
    if archive.exists():
        digest = file_digest(archive, report)
        if published_set.sha256 not in (None, digest):
            raise DataError(
                f"{archive}: is there, with SHA-256 {digest}, and the fetch writes there; expected"
                f" {published_set.sha256}: remove it, or fetch into another folder with --out"
            )
        return digest
    return download(
        RemoteFile(
            published_set.url, published_set.sha256, published_set.size, published_set.most_bytes
        ),
        archive,
        report,
    )


def _line_of_existing(path: Path, published_set: PublishedSet, report: Report) -> str:
    digest = file_digest(path, report)
    beside = path.with_name(path.name + BESIDE)
    if published_set.member is None:
        expected = published_set.sha256
    else:
        expected = None
    if beside.exists():
        fields = beside.read_text(encoding="utf-8", errors="replace").split()
        if fields:
            expected = fields[0].lower()
        else:
            expected = "nothing"
    if expected is not None and digest != expected:
        if beside.exists():
            where = beside.name
        else:
            where = "the published one"
        raise DataError(
            f"{path}: is there, with SHA-256 {digest}, expected {expected} ({where}); remove it to"
            " fetch it again, or fetch into another folder with --out"
        )
    return f"is there already; SHA-256 {digest}, {'as expected' if expected else 'unknown here'}"


def _finish_interrupted(
    archive: Path, path: Path, published_set: PublishedSet, report: Report
) -> str:
    """Finish a fetch that was killed when `path` was unpacked.

    Returns the end of a line about it; empty, with nothing done, where no such archive is left.
    """
    if not archive.exists() or file_digest(archive, report) != published_set.sha256:
        return ""
    if not path.with_name(path.name + BESIDE).exists():
        _write_hash(path, file_digest(path, report))
    archive.unlink()
    return "; the archive that an interrupted fetch left is removed"


def _write_hash(path: Path, digest: str) -> None:
    atomic_write(path.with_name(path.name + BESIDE), f"{digest}  {path.name}\n".encode())


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
        with bar(quiet=command_line.quiet) as report:
            path, line = fetch(published_set, folder, report)
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
