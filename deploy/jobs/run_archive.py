"""A run's folder as an archive from the coordinator's node: unpacked whole, or not at all."""

import gzip
import os
import tarfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from core.ground.errors import ClusterError
from core.ground.files import whole_folder
from core.ground.parcel import (
    RefusedArchive,
    bounded_tar,
    extract,
    is_plain_file,
    is_plain_name,
    room_on_disk,
)

MOST_PACKED_BYTES = 4 << 30
MOST_ENTRIES = 60_000
"""A run of a month has some thousand: checkpoints, a log, epochs. A sweep has some twenty a run."""
MOST_UNPACKED_BYTES = 16 << 30
MOST_RATIO = 100
"""The ratio of unpacked to packed bytes: logs shrink to a tenth, weights hardly at all."""
FREE_BYTES = 64 << 20
"""Allowed whatever the ratio: a short log that repeats one line is no attack."""

_NO_ARCHIVE = (ValueError, OverflowError, RecursionError)
"""Errors that tarfile raises beside its own for other content."""


def pack_command(run_folder: str, checkpoints: bool) -> list[str]:
    """Return the command that prints the folder compressed, with checkpoints only if asked."""
    path = PurePosixPath(run_folder)
    # Those of the runs of a sweep too, which lie in its folder.
    kinds = ("checkpoints", "runs/*/checkpoints")
    if checkpoints:
        left_out = []
    else:
        left_out = [f"--exclude={path.name}/{kind}" for kind in kinds]
    return ["tar", "-C", str(path.parent), *left_out, "-czf", "-", "--", path.name]


def unpack(
    archive: BinaryIO,
    name: str,
    into: Path,
    checked: Callable[[Path], None] = lambda unpacked: None,
    most_bytes_of: Callable[[Sequence[str]], int] = lambda path_segments: MOST_UNPACKED_BYTES,
) -> Path:
    """Unpack an archive of the folder `name` to `into/name`, replacing what is there; its path.

    `checked` gets the unpacked folder before anything is replaced, and refuses it by raising
    ClusterError. `most_bytes_of` says of the segments of a file's path how long it may be;
    with 0 it is left out.

    Takes only plain files and folders below `name`, and no more of them than a run has: an archive
    from another machine writes nowhere else and fills no disk, which is looked at before each file.
    Raises ClusterError when it is damaged, larger than that, or the place cannot be written.
    """
    target = into / name
    try:
        if PurePosixPath(name).parts != (name,) or name in ("..", "/"):
            raise RefusedArchive(f"{name!r}: expected the plain name of a folder")
        into.mkdir(parents=True, exist_ok=True)
        with whole_folder(target) as partial:
            _take_all(archive, name, partial, most_bytes_of)
            checked(partial)
    except (OSError, EOFError, tarfile.TarError, zlib.error, *_NO_ARCHIVE) as error:
        raise ClusterError(
            f"{target}: the run cannot be kept here: {error}; `fab job attach` fetches it again"
        ) from error
    return target


def _take_all(
    archive: BinaryIO, name: str, partial: Path, most_bytes_of: Callable[[Sequence[str]], int]
) -> None:
    """Unpack every entry. Raises RefusedArchive beyond the size of a run."""
    packed_bytes = archive.seek(0, os.SEEK_END)
    archive.seek(0)
    room = room_on_disk(partial)
    most_bytes = min(MOST_UNPACKED_BYTES, max(FREE_BYTES, MOST_RATIO * packed_bytes))
    with gzip.open(archive) as unpacked, bounded_tar(unpacked, most_bytes) as members:
        for count, member in enumerate(members, start=1):
            if count > MOST_ENTRIES:
                raise RefusedArchive(
                    f"expected at most {MOST_ENTRIES} files in a run, there are more"
                )
            path_segments = PurePosixPath(member.name).parts
            if path_segments[:1] != (name,) or not all(map(is_plain_name, path_segments)):
                continue
            if member.isdir():
                partial.joinpath(*path_segments[1:]).mkdir(parents=True, exist_ok=True)
            elif is_plain_file(member):
                most = most_bytes_of(path_segments[1:])
                if member.size > most > 0:
                    raise RefusedArchive(
                        f"{member.name:.200}: expected at most {most:,} bytes, got {member.size:,}"
                    )
                if not most:
                    continue
                room -= member.size
                if room < 0:
                    raise RefusedArchive("its files would fill this disk: free some of it")
                extract(members, member, partial, "/".join(path_segments[1:]))
