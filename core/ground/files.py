"""Files and folders that are there whole or not at all, JSON within bounds, the user's cache.

A reader or a crash never sees half a file. JSON may come from anybody: it is bounded, and of the
one schema that this version knows.
"""

import contextlib
import errno
import glob
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, get_args, get_origin, get_type_hints

from core.ground.errors import ClusterError
from core.ground.locks import locked_folder

OTHER_RUNS = "change `runs`"
"""What else helps against a failed write in a run's folder."""

PARTIAL = ".partial"
"""Suffix of the name of a temporary file; the name starts with a dot and the final name."""

_REPLACED = ".old"

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS)


_OF_DISK = (*FULL, *_NOT_OURS, errno.EIO, errno.ESTALE)


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
        raise write_refusal(path, "cannot be written", problem, otherwise) from None


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
    sync_folder(path.parent)


@contextlib.contextmanager
def folder_beside(path: Path, mode: int = 0o777) -> Iterator[Path]:
    """Make a folder beside `path`; it goes at the end of the block, unless it got another name.

    What killed processes of this account and machine left there goes first: no living process holds
    its lock. A forked child, which shares the lock, removes none. Raises OSError.
    """
    maker = os.getpid()
    prefix = f".{path.name}.{os.uname().nodename}@"
    for leftover in path.parent.glob(f"{glob.escape(prefix)}*{PARTIAL}"):
        with contextlib.suppress(OSError), locked_folder(leftover) as descriptor:
            if os.fstat(descriptor).st_uid == os.geteuid():
                shutil.rmtree(leftover, ignore_errors=True)
    with contextlib.ExitStack() as locks:
        partial = _new_folder(path.with_name(f"{prefix}{maker}"), mode, locks)
        try:
            yield partial
        finally:
            if os.getpid() == maker:
                shutil.rmtree(partial, ignore_errors=True)


def _new_folder(prefix: Path, mode: int, locks: contextlib.ExitStack) -> Path:
    """Make a folder and hold its lock. Another process may take it for a leftover until then."""
    while True:
        folder = prefix.with_name(f"{prefix.name}-{secrets.token_hex(4)}{PARTIAL}")
        folder.mkdir(mode)
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            locks.enter_context(locked_folder(folder))
            if folder.exists():
                return folder


def take_name(partial: Path, path: Path) -> None:
    """Give a finished folder its name, which nothing may have, a link to nowhere neither.

    Raises FileExistsError, OSError; `partial` is then where it was.
    """
    path.mkdir()  # rename() alone would replace an empty folder
    try:
        partial.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            path.rmdir()
        raise
    sync_folder(path.parent)


@contextlib.contextmanager
def whole_folder(path: Path, mode: int = 0o777) -> Iterator[Path]:
    """Fill a folder: it is `path` once the block has ended without an error.

    What is there meanwhile goes last, and comes back if the new folder cannot take its place; the
    next call restores what a kill between the two left. Raises OSError.
    """
    replaced = f".{glob.escape(path.name)}.*{_REPLACED}"
    if not os.path.lexists(path):
        folders = path.parent.glob(replaced)
        if latest := max(folders, key=lambda folder: folder.stat().st_mtime, default=None):
            latest.rename(path)
    # Those of killed processes: with `path` there, a replaced one only waits for its removal.
    for leftover in path.parent.glob(replaced):
        shutil.rmtree(leftover, ignore_errors=True)
    with folder_beside(path, mode) as partial:
        yield partial
        replaced_folder = path.with_name(f".{path.name}.{os.getpid()}{_REPLACED}")
        if os.path.lexists(path):
            path.rename(replaced_folder)
        try:
            partial.rename(path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                replaced_folder.rename(path)
            raise
        shutil.rmtree(replaced_folder, ignore_errors=True)


def write_refusal(
    path: Path, what: str, problem: OSError, otherwise: str = OTHER_RUNS
) -> ClusterError:
    """The error for a failed write: the file, what failed, the reason, the remedy."""
    return ClusterError(
        f"{path}: {what} ({problem.strerror}): {remedy_of(path, problem)} or {otherwise}"
    )


def remedy_of(path: Path, problem: OSError) -> str:
    """What helps the disk that refused to write `path`."""
    if problem.errno in FULL:
        return "free some space"
    if problem.errno in _NOT_OURS:
        return f"make {path.parent} writable for this user"
    return "check that place"


def sync_folder(folder: Path) -> None:
    """Make names in the folder last through a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as problem:
        if problem.errno != errno.EINVAL:  # a file system without syncs of folders
            raise
    finally:
        os.close(descriptor)


LARGEST_OF_RUN = 64 << 20
"""Bytes of a result, or of another JSON file in the folder of a run."""
MOST_LEVELS = 100
"""Lists and objects in each other; ours have ten."""
NO_LINK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags to open a file that anybody may have put there: without O_NONBLOCK, a pipe would wait."""


def parsed_json(content: str | bytes | bytearray, **options: Any) -> Any:
    """Return the content of JSON that anybody may have written; `options` as `json.loads` has them.

    Raises ValueError for no JSON, and for one that is nested deeper than anything of ours: whatever
    walks or writes it afterwards would end in a RecursionError.
    """
    try:
        document = json.loads(content, **options)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [document]
    for _ in range(MOST_LEVELS):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return document
    raise ValueError("nested too deeply")


def read_json(path: Path, most_bytes: int = LARGEST_OF_RUN) -> Any:
    """The content of the file.

    Raises OSError, and ValueError for a longer file, no file of bytes, or no JSON.
    """
    # Without O_NONBLOCK, opening a pipe would wait for its writer.
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not an ordinary file")
        # read() takes the memory of its bound, however short the file is.
        content = stream.read(min(status.st_size, most_bytes) + 1)
    if len(content) > most_bytes:
        raise ValueError(f"longer than {most_bytes:,} bytes")
    return parsed_json(content)


def json_object(path: Path) -> dict[str, Any] | None:
    """The object in this file; None where there is none."""
    try:
        document = read_json(path)
    except (OSError, ValueError):
        return None
    if isinstance(document, dict):
        return document
    return None


def read_object(path: Path, most_bytes: int, schema: int) -> dict[str, Any]:
    """The object in the file.

    Raises OSError, and ValueError for a longer file, no JSON, or another schema.
    """
    document = read_json(path, most_bytes)
    if not isinstance(document, dict) or document.get("schema") != schema:
        raise ValueError(f'no object with "schema": {schema}')
    return document


Record = TypeVar("Record")


def record_of(kind: type[Record], document: Any) -> Record:
    """Return the dataclass that `asdict` made this document of.

    Its fields are texts, numbers, tuples of such and texts by name. Raises ValueError for a field
    of another type, and unless all are there and no others.
    """
    hints = get_type_hints(kind)
    if not isinstance(document, dict) or document.keys() != hints.keys():
        raise ValueError(f"expected an object of {', '.join(hints)}")
    return kind(**{name: _typed(hints[name], value) for name, value in document.items()})


def _typed(kind: Any, value: Any) -> Any:
    of = get_args(kind)
    if not of and type(value) is kind:
        return value
    if isinstance(value, list) and get_origin(kind) is tuple:
        return tuple(_typed(of[0], entry) for entry in value)
    if isinstance(value, dict) and get_origin(kind) is Mapping:
        return {name: _typed(of[1], entry) for name, entry in value.items()}
    raise ValueError(f"expected {kind}, found {value!r:.60}")


PREPARED_VARIABLE = "PSCLUSTER_PREPARED"


def user_cache() -> Path:
    """`$XDG_CACHE_HOME/pscluster`, else `~/.cache/pscluster`. It need not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pscluster"


def prepared_folder() -> Path:
    """Return where windows and examples are prepared, below the user's cache. It need not exist.

    Foreign code has a folder of its own there: what it writes is read by no other training.
    """
    return Path(os.environ.get(PREPARED_VARIABLE) or user_cache() / "prepared")
