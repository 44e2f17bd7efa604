"""The library itself: TensorFlow's operations, and what it answers without them."""

import ctypes
import functools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.place import path

Floats = NDArray[np.float32]
_POINTER = ctypes.c_void_p
_LONG = ctypes.c_long


class UnfitProgramError(ValueError):
    """The library says why it does not compute this."""


def nodes(first: int, count: int) -> list[tuple[int, int]]:
    """Return the largest aligned subtrees, (first slot, slots), of a range of slots."""
    subtrees = []
    end = first + count
    while first < end:
        size = 1
        while first % (2 * size) == 0 and first + 2 * size <= end:
            size *= 2
        subtrees.append((first, size))
        first += size
    return subtrees


class NativeLibrary:
    """A loaded library."""

    def __init__(self, file: Path) -> None:
        """Raises OSError where it cannot be loaded."""
        library = ctypes.CDLL(str(file))
        library.pscluster_kind.restype = ctypes.c_char_p
        library.pscluster_call.restype = ctypes.c_char_p
        library.pscluster_proof.restype = ctypes.c_char_p
        self._library = library

    @property
    def kind(self) -> str:
        """The kind of processor that it computes for."""
        return str(self._library.pscluster_kind().decode())

    @property
    def version(self) -> int:
        """The version of its arithmetic and of its operations."""
        return int(self._library.pscluster_version())

    def give_back(self) -> None:
        """Free what the library keeps for later calls."""
        self._library.pscluster_give_back()

    def proof(self, kind: str = "") -> NDArray[np.int32]:
        """Return what the operation PsclusterProof does: equal where bits are equal, int32 (4,).

        It has the version, two words of a digest, and the number of floats digested. Raises
        UnfitProgramError.
        """
        digest_words = np.empty(4, np.int32)
        _raise(self._library.pscluster_proof(kind.encode(), _POINTER(digest_words.ctypes.data)))
        return digest_words

    def called(self, record: bytes, floats: int, *, threads: int, kind: str) -> Floats:
        """Compute a call as tests record it; return its results, so many `floats`.

        It uses exactly these threads, and the fastest kind of this processor for the empty one.
        Raises UnfitProgramError.
        """
        results = np.empty(floats, np.float32)
        place = _POINTER(results.ctypes.data)
        arguments = (record, _LONG(len(record)), kind.encode(), _LONG(threads))
        _raise(self._library.pscluster_call(*arguments, place))
        return results


def _raise(refusal: bytes | None) -> None:
    if refusal:
        raise UnfitProgramError(refusal.decode())


@functools.cache
def operations() -> Any:
    """Load the library of this machine into TensorFlow; return its operations' wrappers.

    Raises tf.errors.NotFoundError where it cannot be loaded.
    """
    import tensorflow as tf  # the import takes seconds

    return tf.load_op_library(str(path()))


def can_be_loaded() -> bool:
    """Return whether this installation has the library of this machine."""
    import tensorflow as tf

    try:
        operations()
    except tf.errors.OpError:
        return False
    return True


@functools.cache
def loaded() -> NativeLibrary:
    """Load the library of this machine. Raises what `operations` raises.

    TensorFlow comes first: it learns of operations only while it loads a library itself.
    """
    operations()
    return NativeLibrary(path())
