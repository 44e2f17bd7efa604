"""A program and the files beside it, as they travel to a node: one archive of bounded size."""

import gzip
import io
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

from cluster.errors import ClusterError, UsageError

ARCHIVE = "program.tar.gz"
"""In the job's folder on the node."""
FOLDER = "program"
"""In the archive, and in the job's folder."""
MOST_FILES = 2000
MOST_BYTES = 64 << 20
_LEFT_OUT = frozenset({"__pycache__", "runs", "node_modules"})


def packed(program: Path) -> bytes:
    """The folder of the program as a compressed archive: its plain files, those of hidden folders and caches apart.

    Hidden files, links, Python environments and `runs/` stay here. Raises UsageError beyond MOST_FILES or MOST_BYTES
    and for a program that would stay here, ClusterError for a file that cannot be read.
    """
    found: list[tuple[Path, int]] = []
    total = 0
    for path, size in _files(program.parent):
        found.append((path, size))
        total += size
        if len(found) > MOST_FILES or total > MOST_BYTES:
            raise UsageError(
                f"{program.parent}: the folder of a program goes to the node whole, and this one has more than "
                f"{MOST_FILES} files or {MOST_BYTES >> 20} MiB: put {program.name} and its modules into a folder of "
                "their own"
            )
    if all(path != program for path, _ in found):
        raise UsageError(f"{program}: hidden files and links stay here: name the program itself, by a plain name")
    buffer = io.BytesIO()
    try:
        # Times of zero: the same files are the same bytes.
        with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as stream, tarfile.open(fileobj=stream, mode="w") as tar:
            for path, size in sorted(found):
                entry = tarfile.TarInfo(f"{FOLDER}/{path.relative_to(program.parent)}")
                content = path.read_bytes()[:size]
                entry.size, entry.mode = len(content), 0o640
                tar.addfile(entry, io.BytesIO(content))
    except OSError as problem:
        raise ClusterError(f"{problem.filename or program}: cannot be read: {problem.strerror}") from None
    return buffer.getvalue()


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    for root, folders, names in os.walk(folder):
        here = Path(root)
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and name not in _LEFT_OUT and not (here / name / "pyvenv.cfg").exists()
        ]
        for name in names:
            try:
                found = (here / name).lstat()
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode) and not name.startswith("."):
                yield here / name, found.st_size
