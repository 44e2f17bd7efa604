"""Reads the newest whole checkpoint, and says why it refuses each newer one. Needs no lock."""

import hashlib
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from cluster.checkpoints import manifest
from cluster.checkpoints.manifest import Checkpoint, Damaged, Manifest, manifests
from cluster.errors import ClusterError

ATTEMPTS = 100
"""A new attempt starts when a writer committed something during the last one."""

_DAMAGE = (Damaged, OSError, ValueError, KeyError, TypeError, ArithmeticError, RecursionError, MemoryError)
"""Errors from reading a file that is cut, edited, unreadable or malicious."""

Found = tuple[Checkpoint | None, tuple[str, ...]]


def read_newest(folder: Path) -> Found:
    """The newest whole checkpoint in `folder`, or None, and one line for each newer one that is refused.

    A line names the file and its damage. Takes no lock: if a writer replaces or removes files meanwhile, it looks
    again. Raises ClusterError if the folder cannot be read; a missing folder holds no checkpoint.
    """
    for _ in range(ATTEMPTS):
        seen = _seen(folder)
        found = _newest(seen)
        if not found[1] or _seen(folder) == seen:
            break
    return found


def glance(path: Path, update: int) -> Manifest | None:
    """The manifest at `path` if it is whole and its tensors have its length. Does not read their content."""
    try:
        described = manifest.parse(_content(path, _manifest_fits), update)
        tensors = path.with_name(described.tensors_name)
        return described if tensors.stat().st_size == described.tensors_bytes else None
    except _DAMAGE:
        return None


def _seen(folder: Path) -> list[tuple[int, Path, tuple[int, int] | None]]:
    try:
        return [(update, path, _identity(path)) for update, path in manifests(folder)]
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise ClusterError(
            f"{folder}: checkpoints cannot be looked for ({problem.strerror}): make it a folder that this user may read"
        ) from None


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _newest(seen: list[tuple[int, Path, tuple[int, int] | None]]) -> Found:
    refused: list[str] = []
    for update, path, _ in seen:
        reading = path
        try:
            described = manifest.parse(_content(path, _manifest_fits), update)
            reading = path.with_name(described.tensors_name)
            return Checkpoint(update, _tensors(reading, described), described.facts), tuple(refused)
        except (*_DAMAGE, SafetensorError) as problem:
            refused.append(f"{reading}: {_reason(problem)}")
    return None, tuple(refused)


def _tensors(path: Path, described: Manifest) -> dict[str, NDArray[Any]]:
    def fits(length: int) -> None:
        if length != described.tensors_bytes:
            raise Damaged(f"{length} bytes where its manifest says {described.tensors_bytes}")

    content = _content(path, fits)
    if hashlib.sha256(content).hexdigest() != described.tensors_sha256:
        raise Damaged("its content does not match the sha256 in its manifest")
    arrays: dict[str, NDArray[Any]] = load(content)
    if {name: (array.dtype.name, array.shape) for name, array in arrays.items()} != described.arrays:
        raise Damaged("holds other arrays than its manifest says")
    return {name: arrays[name] for name in described.arrays}


def _manifest_fits(length: int) -> None:
    if length > manifest.LARGEST_BYTES:
        raise Damaged(f"{length} bytes, more than the {manifest.LARGEST_BYTES} a manifest has")


def _content(path: Path, fits: Callable[[int], None]) -> bytes:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise Damaged("not a regular file")  # opening a pipe would wait for a writer
    fits(found.st_size)
    return path.read_bytes()


def _reason(problem: Exception) -> str:
    match problem:
        case KeyError():
            return f"no key {problem}"
        case OSError():
            return f"cannot be read ({problem.strerror})"
        case _:
            return (str(problem).splitlines() or [type(problem).__name__])[0]
