"""Atomic writes: a reader or a crash never sees half a file."""

import contextlib
import errno
import glob
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from core.errors import ClusterError

OTHER_RUNS = "change `runs`"
"""What else helps against a failed write in a run's folder."""

PARTIAL = ".partial"
"""Suffix of the name of a temporary file; the name starts with a dot and the final name."""

_ENDS = ("partial", "old")

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS)


_OF_DISK = (*_FULL, *_NOT_OURS, errno.EIO, errno.ESTALE)


def of_disk(problem: OSError) -> bool:
    """Whether a disk, or the storage server behind it, has refused something: no defect of ours."""
    return problem.errno in _OF_DISK


def atomic_write(path: Path, content: bytes, otherwise: str = OTHER_RUNS) -> None:
    """Write `path` so that a reader, a crash, a full disk or a power cut never leaves half of it.

    It syncs the folder too: of two files written in order, the second never survives alone. Raises
    ClusterError; `path` is then unchanged, unless only the sync of the folder failed. `otherwise`
    ends the error: what else helps.
    """
    with atomic_stream(path, otherwise) as stream:
        stream.write(content)


@contextlib.contextmanager
def atomic_stream(path: Path, otherwise: str = OTHER_RUNS) -> Iterator[BinaryIO]:
    """Write a file piece by piece: `path` is there once the block has ended without an error.

    All else is as with `atomic_write`: never half of it, and ClusterError.
    """
    try:
        with whole_file(path) as stream:
            yield stream
    except OSError as problem:
        raise refused(path, "cannot be written", problem, otherwise) from None


@contextlib.contextmanager
def whole_file(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Write as `atomic_stream` does, but raise OSError; the file is never wider than `mode`."""
    partial = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    partial.unlink(missing_ok=True)
    new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(partial, new, mode), "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    _sync(path.parent)


@contextlib.contextmanager
def whole_folder(path: Path, mode: int = 0o777) -> Iterator[Path]:
    """Fill a folder: it is `path` once the block has ended without an error.

    What is there meanwhile goes last, and comes back if the new folder cannot take its place; the
    next call restores what a kill between the two left. Raises OSError.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.{_ENDS[0]}")
    old = path.with_name(f".{path.name}.{os.getpid()}.{_ENDS[1]}")
    if not os.path.lexists(path):
        replaced = path.parent.glob(f".{glob.escape(path.name)}.*.{_ENDS[1]}")
        if latest := max(replaced, key=lambda folder: folder.stat().st_mtime, default=None):
            latest.rename(path)
    # Those of killed processes: with `path` there, an old one only waits for its removal.
    for leftover in (partial, *path.parent.glob(f".{glob.escape(path.name)}.*.{_ENDS[1]}")):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        partial.mkdir(mode)
        yield partial
        if os.path.lexists(path):
            path.rename(old)
        try:
            partial.rename(path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                old.rename(path)
            raise
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def refused(path: Path, what: str, problem: OSError, otherwise: str = OTHER_RUNS) -> ClusterError:
    """The error for a failed write: the file, what failed, the reason, the remedy."""
    if problem.errno in _FULL:
        remedy = "free some space"
    elif problem.errno in _NOT_OURS:
        remedy = f"make {path.parent} writable for this user"
    else:
        remedy = "check that place"
    return ClusterError(f"{path}: {what} ({problem.strerror}): {remedy} or {otherwise}")


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as problem:
        if problem.errno != errno.EINVAL:  # a file system without syncs of folders
            raise
    finally:
        os.close(descriptor)
