"""A run's folder as an archive from the coordinator's node: unpacked whole, or not at all."""

import gzip
import os
import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from cluster.errors import ClusterError

MOST_PACKED_BYTES = 4 << 30
MOST_ENTRIES = 60_000
"""A run of a month has some thousand: checkpoints, a log, epochs. A sweep has some twenty a run."""
MOST_UNPACKED_BYTES = 16 << 30
MOST_RATIO = 100
"""Of unpacked to packed bytes: logs shrink to a tenth, weights hardly at all."""
FREE_BYTES = 64 << 20
"""Allowed whatever the ratio: a short log that repeats one line is no attack."""
MOST_NAME_BYTES = 255
_BLOCK_BYTES = 1 << 20
_LATEST = 1 << 33
"""The latest time of a file, in the year 2242."""


class _RefusedArchiveError(Exception):
    """The archive holds something that no run has; the message names it."""


_NO_ARCHIVE = (_RefusedArchiveError, ValueError, OverflowError, RecursionError)
"""What tarfile raises beside its own errors for other content."""


class _Bounded:
    """A stream for tarfile that ends beyond the size of a run, and refuses a name of megabytes."""

    def __init__(self, stream: "gzip.GzipFile | BinaryIO", most_bytes: int) -> None:
        self._stream, self._most_bytes = stream, most_bytes

    def read(self, count: int = -1) -> bytes:
        if not 0 <= count <= _BLOCK_BYTES:
            raise _RefusedArchiveError("an entry's name or attributes are longer than any run's")
        self._check(self._stream.tell() + count)
        return self._stream.read(count)

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        self._check(position)
        return self._stream.seek(position, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def _check(self, position: int) -> None:
        if position > self._most_bytes:
            raise _RefusedArchiveError(f"it unpacks to more than {self._most_bytes} bytes, which no such run does")


def pack_command(run_folder: str, checkpoints: bool) -> list[str]:
    """The command that prints the folder as a compressed archive, with checkpoints only if asked."""
    path = PurePosixPath(run_folder)
    # Those of the runs of a sweep too, which lie in its folder.
    kinds = ("checkpoints", "runs/*/checkpoints")
    left_out = [] if checkpoints else [f"--exclude={path.name}/{kind}" for kind in kinds]
    return ["tar", "-C", str(path.parent), *left_out, "-czf", "-", "--", path.name]


def unpack(archive: BinaryIO, name: str, into: Path) -> Path:
    """Unpack an archive of the folder `name` to `into/name`, replacing what is there; its path.

    Takes only plain files and folders below `name`, and no more of them than a run has: an archive from another machine
    writes nowhere else and fills no disk. Raises ClusterError when it is damaged, larger than that, or the place cannot
    be written.
    """
    target, partial, old = into / name, into / f".{name}.{os.getpid()}.partial", into / f".{name}.{os.getpid()}.old"
    try:
        if PurePosixPath(name).parts != (name,) or name in ("..", "/"):
            raise _RefusedArchiveError(f"{name!r}: expected the plain name of a folder")
        into.mkdir(parents=True, exist_ok=True)
        try:
            partial.mkdir()
            _take_all(archive, name, partial)
            if target.exists():
                target.rename(old)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
    except (OSError, EOFError, tarfile.TarError, zlib.error, *_NO_ARCHIVE) as error:
        raise ClusterError(
            f"{target}: the run cannot be kept here: {error}; `fab job attach` fetches it again"
        ) from error
    return target


def _take_all(archive: BinaryIO, name: str, partial: Path) -> None:
    """Unpack every entry. Raises _RefusedArchiveError beyond the size of a run."""
    packed_bytes = archive.seek(0, os.SEEK_END)
    archive.seek(0)
    most_bytes = min(MOST_UNPACKED_BYTES, max(FREE_BYTES, MOST_RATIO * packed_bytes))
    with gzip.open(archive) as unpacked:
        bounded: Any = _Bounded(unpacked, most_bytes)
        with tarfile.open(fileobj=bounded, mode="r:") as members:
            for count, member in enumerate(members, start=1):
                if count > MOST_ENTRIES:
                    raise _RefusedArchiveError(f"expected at most {MOST_ENTRIES} files in a run, there are more")
                _take(members, member, name, partial)


def _take(members: tarfile.TarFile, member: tarfile.TarInfo, name: str, partial: Path) -> None:
    parts = PurePosixPath(member.name).parts
    if parts[:1] != (name,) or not all(map(_is_plain, parts)):
        return
    path = partial.joinpath(*parts[1:])
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
    elif member.isfile() and not member.issparse():
        content = members.extractfile(member)
        if content is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with content, path.open("xb") as stream:
                shutil.copyfileobj(content, stream, _BLOCK_BYTES)
            if 0 <= member.mtime <= _LATEST:
                os.utime(path, (member.mtime, member.mtime))


def _is_plain(part: str) -> bool:
    return part not in ("", ".", "..") and part.isprintable() and len(os.fsencode(part)) <= MOST_NAME_BYTES
