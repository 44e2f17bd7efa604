"""The files of an export.

They are read with a bound, hashed, and never through a link out of their folder.
"""

import hashlib
import os
import stat
from pathlib import Path

from core.ground.files import NO_LINK

LARGEST_MODEL_BYTES = 4 * 2**30
MOST_FILES = 10_000
"""Bound of one SavedModel's folder."""
CHUNK_BYTES = 1 << 20


def read_bytes(path: Path | int, limit: int) -> bytes:
    """The content of a plain file, or of an open one, which it closes.

    Raises OSError, and ValueError for one that is no file or longer than `limit`.
    """
    descriptor = path if isinstance(path, int) else opened(path)
    with os.fdopen(descriptor, "rb") as stream:
        # `read` takes memory for all that it is asked for, so the size decides first.
        size = os.fstat(stream.fileno()).st_size
        if size <= limit:
            content = stream.read(min(limit, size) + 1)
        else:
            content = b""
    if max(size, len(content)) > limit:
        raise ValueError(f"more than {limit:,} bytes")
    return content


def measured(path: Path, limit: int = LARGEST_MODEL_BYTES) -> tuple[str, int]:
    """Return the SHA-256 and bytes of a file.

    Of a folder it is over the names and hashes of all its files, in order.

    Raises OSError, and ValueError for a link, for what is neither file nor folder, and for more
    than `limit` bytes.
    """
    if not path.is_dir() or path.is_symlink():
        return _file(path, limit)
    total = hashlib.sha256()
    size = 0
    for member in _files(path):
        digest, length = _file(member, limit - size)
        total.update(f"{member.relative_to(path).as_posix()}\0{digest}\n".encode())
        size += length
    return total.hexdigest(), size


def _files(folder: Path) -> list[Path]:
    paths: list[Path] = []
    for parent, folders, files in os.walk(folder):
        for name in folders:
            if Path(parent, name).is_symlink():
                raise ValueError(f"a link, {name}")
        paths += [Path(parent, name) for name in files]
        if len(paths) > MOST_FILES:
            raise ValueError(f"more than {MOST_FILES:,} files")
    return sorted(paths, key=lambda path: path.relative_to(folder).as_posix())


def _file(path: Path, limit: int) -> tuple[str, int]:
    total = hashlib.sha256()
    size = 0
    with os.fdopen(opened(path), "rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            total.update(chunk)
            size += len(chunk)
            if size > limit:
                raise ValueError(f"more than {limit:,} bytes")
    return total.hexdigest(), size


def opened(path: Path) -> int:
    """Return a descriptor of a plain file, without waiting for a pipe's other end.

    Raises OSError, and ValueError for what is none.
    """
    if path.is_symlink():
        raise ValueError(f"a link, {path.name}")
    descriptor = os.open(path, NO_LINK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"no plain file, {path.name}")
    return descriptor
