"""A program and the files beside it, as they travel to a node: one archive of bounded size."""

import gzip
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from core.ground.errors import ClusterError, UsageError
from core.ground.parcel import tar_of

ARCHIVE = "program.tar.gz"
"""File in the job's folder on the node."""
FOLDER = "program"
"""Folder in the archive, and in the job's folder."""
MOST_FILES = 2000
MOST_BYTES = 64 << 20
_LEFT_OUT = frozenset({"__pycache__", "runs", "node_modules"})


def packed(program: Path) -> bytes:
    """Return the program's folder as a compressed archive of plain, visible files.

    Hidden files, links, Python environments and `runs/` stay here. Raises UsageError beyond
    MOST_FILES or MOST_BYTES and for a program that would stay here, ClusterError for a file that
    cannot be read.
    """
    sizes: dict[Path, int] = {}
    total = 0
    for path, size in _files(program.parent):
        sizes[path] = size
        total += size
        if len(sizes) > MOST_FILES or total > MOST_BYTES:
            raise UsageError(
                f"{program.parent}: the folder of a program goes to the node whole, and this one"
                f" has more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB: put {program.name}"
                " and its modules into a folder of their own"
            )
    if program not in sizes:
        raise UsageError(
            f"{program}: hidden files and links stay here: name the program itself, by a plain name"
        )
    try:
        tar = tar_of(
            (f"{FOLDER}/{path.relative_to(program.parent)}", path.read_bytes()[: sizes[path]])
            for path in sorted(sizes)
        )
    except OSError as problem:
        raise ClusterError(
            f"{problem.filename or program}: cannot be read: {problem.strerror}"
        ) from None
    return gzip.compress(tar, mtime=0)  # the same files are the same bytes


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    for root, folders, names in os.walk(folder):
        directory = Path(root)
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _LEFT_OUT
            and not (directory / name / "pyvenv.cfg").exists()
        ]
        for name in names:
            try:
                file_status = (directory / name).lstat()
            except OSError:
                continue
            if stat.S_ISREG(file_status.st_mode) and not name.startswith("."):
                yield directory / name, file_status.st_size
