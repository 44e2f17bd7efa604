"""Checkpoints, from which a training run resumes: named arrays and JSON, without jobs and models.

The room offers `Checkpoint`, `CheckpointStore` for the one process that writes, `read_newest` for
readers, and `WriterLock` for any other folder with one writer, and `Superseded` for a writer that
lost it.
"""

import hashlib
import operator
import stat
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from core.checkpoints.manifest import (
    LARGEST_BYTES,
    LARGEST_UPDATE,
    ArrayKind,
    Checkpoint,
    Damaged,
    Manifest,
    TensorsFile,
    manifest_name,
    manifests,
    parse,
    partials,
    tensors_files,
    tensors_names,
)
from core.checkpoints.writer_lock import Superseded, WriterLock
from core.ground.errors import ClusterError, UsageError, reason_of
from core.ground.files import atomic_write, write_refusal

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64"),
)
"""The types that NumPy and safetensors both have."""

Found = tuple[Checkpoint | None, tuple[str, ...]]


class CheckpointStore(AbstractContextManager["CheckpointStore"]):
    """Writes checkpoints into a folder that no other process writes, from one thread at a time.

    Readers need no store: see `read_newest`.
    """

    def __init__(self, folder: Path, keep: int = 3) -> None:
        """Make and lock `folder`; the last `keep` whole checkpoints stay.

        Raises ClusterError, naming the holder.
        """
        if keep < 1:
            raise UsageError(
                f"{folder}: expected to keep at least 1 checkpoint, got {keep}: keep one or more"
            )
        self.folder = folder
        self.keep = keep
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise write_refusal(folder, "cannot be made", problem) from None
        self._lock: WriterLock | None = WriterLock(folder)

    def write(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint, remove those that it makes superfluous, return its manifest's path.

        It replaces a checkpoint of the same update. Raises ClusterError when the contents cannot be
        stored or the disk refuses them, and Superseded when another process has taken the folder
        over; the folder then holds the checkpoints that it held before, and nothing else.
        """
        if self._lock is None:
            raise ClusterError(f"{self.folder}: this store is closed: make another one to write")
        try:
            update = operator.index(checkpoint.update)
            if not 0 <= update <= LARGEST_UPDATE:
                raise ValueError(f"update: expected 0 to {LARGEST_UPDATE}, got {update}")
            arrays = {name: _plain(name, array) for name, array in checkpoint.tensors.items()}
            content = save(arrays)
            described = Manifest(
                update,
                TensorsFile(
                    self._free_name(update), len(content), hashlib.sha256(content).hexdigest()
                ),
                _kinds(arrays),
                checkpoint.facts,
            )
            raw = described.to_bytes()
        except (ValueError, TypeError, SafetensorError) as problem:
            raise ClusterError(
                f"{self.folder}: checkpoint {checkpoint.update!r}: {problem}"
            ) from None
        path = self.folder / manifest_name(update)
        tensors = self.folder / described.tensors.name
        try:
            atomic_write(tensors, content)
            self._lock.refuse_if_superseded()
            atomic_write(path, raw)
        except BaseException:
            if self._named(update) != tensors.name:
                with suppress(OSError):
                    tensors.unlink(missing_ok=True)
            raise
        try:
            self._tidy(update)
        except OSError as problem:
            raise write_refusal(
                self.folder, f"{path.name} is written, but older ones cannot be removed", problem
            ) from None
        return path

    def newest(self) -> Found:
        """Return the newest whole checkpoint and lines of refused ones, see `read_newest`."""
        return read_newest(self.folder)

    def close(self) -> None:
        """Release the folder for another writer. May be called twice."""
        lock = self._lock
        self._lock = None
        if lock is not None:
            lock.release()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _named(self, update: int) -> str | None:
        return _glance(self.folder / manifest_name(update), update)

    def _free_name(self, update: int) -> str:
        first, again = tensors_names(update)
        if self._named(update) == first:
            return again
        return first

    def _tidy(self, newest: int) -> None:
        """Remove all but the last `keep` checkpoints, and the files of interrupted writes.

        Checkpoints and tensors of updates above `newest` stay.

        A damaged checkpoint does not count, and goes once `keep` whole ones came after it. A
        manifest goes before its tensors: tensors without a manifest are a leftover, a manifest
        without tensors is a damaged checkpoint.
        """
        present = [
            (update, path, _glance(path, update))
            for update, path in manifests(self.folder)
            if update <= newest
        ]
        whole = [update for update, _, tensors_name in present if tensors_name is not None]
        if len(whole) >= self.keep:
            oldest = whole[self.keep - 1]
        else:
            oldest = 0
        used = set()
        unclear = set()
        for update, path, tensors_name in present:
            if update < oldest:
                path.unlink(missing_ok=True)
            elif tensors_name is None:
                unclear.add(update)
            else:
                used.add(tensors_name)
        for update, path in tensors_files(self.folder):
            if update <= newest and update not in unclear and path.name not in used:
                path.unlink(missing_ok=True)
        for path in partials(self.folder):
            path.unlink(missing_ok=True)


def _kinds(arrays: Mapping[str, NDArray[Any]]) -> dict[str, ArrayKind]:
    return {name: ArrayKind(array.dtype.name, list(array.shape)) for name, array in arrays.items()}


def _plain(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return the array in C order.

    safetensors assumes that order: it writes any array as its bytes lie in memory.
    """
    if name == "__metadata__":
        raise ValueError(
            f"tensors: expected a name other than safetensors' own '__metadata__', got {name!r}"
        )
    array = np.asarray(array)
    if array.dtype.name not in DTYPES:
        raise ValueError(
            f"tensors[{name!r}]: expected one of {', '.join(DTYPES)}, got {array.dtype}: convert"
            " it, or store its bits as unsigned integers"
        )
    return np.asarray(array, order="C")


ATTEMPTS = 100
"""A new attempt starts when a writer committed something during the last one."""

_DAMAGE = (
    Damaged,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
)
"""Errors from reading a file that is cut, edited, unreadable or malicious."""


def read_newest(folder: Path) -> Found:
    """Return the newest whole checkpoint, or None, and a line for each newer one that is refused.

    A line names the file and its damage. Takes no lock: if a writer replaces or removes files
    meanwhile, it looks again. Raises ClusterError if the folder cannot be read; a missing folder
    holds no checkpoint.
    """
    for _ in range(ATTEMPTS):
        listing = _seen(folder)
        newest = _newest(listing)
        if not newest[1] or _seen(folder) == listing:
            break
    return newest


def _glance(path: Path, update: int) -> str | None:
    """Return the name of a manifest's tensors if it is whole and they have its length, or None.

    Reads no tensor.
    """
    try:
        described = _described(path, update)
        tensors = path.with_name(described.tensors.name)
        if tensors.stat().st_size == described.tensors.bytes:
            return tensors.name
        return None
    except _DAMAGE:
        return None


def _seen(folder: Path) -> list[tuple[int, Path, tuple[int, int] | None]]:
    try:
        return [(update, path, _identity(path)) for update, path in manifests(folder)]
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise ClusterError(
            f"{folder}: checkpoints cannot be looked for ({problem.strerror}): make it a folder"
            " that this user may read"
        ) from None


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _newest(listing: list[tuple[int, Path, tuple[int, int] | None]]) -> Found:
    refused: list[str] = []
    for update, path, _ in listing:
        reading = path
        try:
            described = _described(path, update)
            reading = path.with_name(described.tensors.name)
            return Checkpoint(update, _tensors(reading, described), described.facts), tuple(refused)
        except OSError as problem:
            refused.append(f"{reading}: cannot be read ({reason_of(problem)})")
        except (*_DAMAGE, SafetensorError) as problem:
            refused.append(f"{reading}: {reason_of(problem)}")
    return None, tuple(refused)


def _described(path: Path, update: int) -> Manifest:
    return parse(
        _content(path, range(LARGEST_BYTES + 1), f", more than the {LARGEST_BYTES} a manifest has"),
        update,
    )


def _tensors(path: Path, described: Manifest) -> dict[str, NDArray[Any]]:
    length = described.tensors.bytes
    content = _content(path, range(length, length + 1), f" where its manifest says {length}")
    if hashlib.sha256(content).hexdigest() != described.tensors.sha256:
        raise Damaged("its content does not match the sha256 in its manifest")
    arrays: dict[str, NDArray[Any]] = load(content)
    if _kinds(arrays) != described.arrays:
        raise Damaged("holds other arrays than its manifest says")
    return {name: arrays[name] for name in described.arrays}


def _content(path: Path, lengths: range, else_said: str) -> bytes:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise Damaged("not a regular file")  # opening a pipe would wait for a writer
    if status.st_size not in lengths:
        raise Damaged(f"{status.st_size} bytes{else_said}")
    return path.read_bytes()


__all__ = ["Checkpoint", "CheckpointStore", "Superseded", "WriterLock", "read_newest"]
