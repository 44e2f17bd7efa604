"""The one writer of a folder of checkpoints: each is whole or not there, and the last few stay."""

import contextlib
import fcntl
import hashlib
import operator
import os
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save

from cluster.atomic_write import atomic_write, refused
from cluster.checkpoints import reading
from cluster.checkpoints.manifest import (
    LARGEST_UPDATE,
    Checkpoint,
    Manifest,
    manifest_name,
    manifests,
    partials,
    tensors_files,
    tensors_names,
)
from cluster.errors import ClusterError, UsageError

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64"),
)
"""The types that NumPy and safetensors both have."""

LOCK = ".lock"


class CheckpointStore:
    """Writes checkpoints into a folder that no other process writes, from one thread at a time.

    A context manager. Readers need no store: see `read_newest`.
    """

    def __init__(self, folder: Path, keep: int = 3) -> None:
        """Make and lock `folder`; the last `keep` whole checkpoints stay. Raises ClusterError, naming the holder."""
        if keep < 1:
            raise UsageError(f"{folder}: expected to keep at least 1 checkpoint, got {keep}: keep one or more")
        self.folder, self.keep = folder, keep
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise refused(folder, "cannot be made", problem) from None
        self._lock: WriterLock | None = WriterLock(folder)

    def write(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint, then remove those that it makes superfluous; returns its manifest's path.

        It replaces a checkpoint of the same update. Raises ClusterError when the contents cannot be stored or the disk
        refuses them; the folder then holds the checkpoints that it held before, and nothing else.
        """
        if self._lock is None:
            raise ClusterError(f"{self.folder}: this store is closed: make another one to write")
        try:
            update = operator.index(checkpoint.update)
            if not 0 <= update <= LARGEST_UPDATE:
                raise ValueError(f"update: expected 0 to {LARGEST_UPDATE}, got {update}")
            arrays = {name: _plain(name, array) for name, array in checkpoint.tensors.items()}
            content = save(arrays)
            manifest = Manifest(
                update=update,
                tensors_name=self._free_name(update),
                tensors_bytes=len(content),
                tensors_sha256=hashlib.sha256(content).hexdigest(),
                arrays={name: (array.dtype.name, array.shape) for name, array in arrays.items()},
                facts=checkpoint.facts,
            )
            described = manifest.to_bytes()
        except (ValueError, TypeError, RecursionError, SafetensorError) as problem:
            raise ClusterError(f"{self.folder}: checkpoint {checkpoint.update!r}: {problem}") from None
        path = self.folder / manifest_name(update)
        try:
            atomic_write(self.folder / manifest.tensors_name, content)
            atomic_write(path, described)
        except BaseException:
            if self._named(update) != manifest.tensors_name:
                with contextlib.suppress(OSError):
                    (self.folder / manifest.tensors_name).unlink(missing_ok=True)
            raise
        try:
            self._tidy(update)
        except OSError as problem:
            raise refused(self.folder, f"{path.name} is written, but older ones cannot be removed", problem) from None
        return path

    def newest(self) -> reading.Found:
        """As `read_newest`."""
        return reading.read_newest(self.folder)

    def close(self) -> None:
        """Release the folder for another writer. May be called twice."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def __enter__(self) -> "CheckpointStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _named(self, update: int) -> str | None:
        manifest = reading.glance(self.folder / manifest_name(update), update)
        return None if manifest is None else manifest.tensors_name

    def _free_name(self, update: int) -> str:
        first, again = tensors_names(update)
        return again if self._named(update) == first else first

    def _tidy(self, newest: int) -> None:
        """Remove all but the last `keep` checkpoints up to the new one, and the files of interrupted writes.

        A damaged checkpoint does not count, and goes once `keep` whole ones came after it. A manifest goes before its
        tensors: tensors without a manifest are a leftover, a manifest without tensors is a damaged checkpoint.
        """
        present = [
            (update, path, reading.glance(path, update)) for update, path in manifests(self.folder) if update <= newest
        ]
        whole = [update for update, _, manifest in present if manifest is not None]
        oldest = whole[self.keep - 1] if len(whole) >= self.keep else 0
        used, unclear = set(), set()
        for update, path, manifest in present:
            if update < oldest:
                path.unlink(missing_ok=True)
            elif manifest is None:
                unclear.add(update)
            else:
                used.add(manifest.tensors_name)
        for update, path in tensors_files(self.folder):
            if update <= newest and update not in unclear and path.name not in used:
                path.unlink(missing_ok=True)
        for path in partials(self.folder):
            path.unlink(missing_ok=True)


def _plain(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array in C order. safetensors assumes that order: it writes any array as its bytes lie in memory."""
    if name == "__metadata__":
        raise ValueError(f"tensors: expected a name other than safetensors' own '__metadata__', got {name!r}")
    array = np.asarray(array)
    if array.dtype.name not in DTYPES:
        raise ValueError(
            f"tensors[{name!r}]: expected one of {', '.join(DTYPES)}, got {array.dtype}: convert it, or store "
            f"its bits as unsigned integers"
        )
    return np.asarray(array, order="C")


class WriterLock:
    """One writer a folder, from construction to `release`; the lock file holds the writer's pid.

    The kernel releases the lock however the process ends (flock(2)).
    """

    def __init__(self, folder: Path) -> None:
        """Take the lock of `folder`. Raises ClusterError that names the process that has it."""
        path = folder / LOCK
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as problem:
            raise refused(path, "cannot be locked", problem) from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.truncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            holder = _signed(self._descriptor)
            os.close(self._descriptor)
            raise ClusterError(
                f"{folder}: expected to be the only one who writes there, but {holder} does: wait for it to end, or "
                "stop it"
            ) from None
        except OSError as problem:
            os.close(self._descriptor)
            raise refused(path, "cannot be locked", problem) from None

    def release(self) -> None:
        """Release the lock. The file stays: without it two processes could lock two files of one name."""
        os.close(self._descriptor)


def _signed(descriptor: int) -> str:
    text = os.pread(descriptor, 32, 0).decode("ascii", errors="replace").strip()
    return f"process {text}" if text.isdigit() else "another process"
