"""The state of a stream as bytes: named values and arrays, checked when they come back. Pure.

    PSS1 | length of the head | CRC-32 of the rest | head: JSON | the arrays

The arrays are little-endian, one after the other.

The checksum finds damage, and no intent: the one who gives the bytes back may have made them up. So
each part is checked when it is taken, and no length is believed before the bytes were counted.
"""

import json
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.ground.errors import UsageError
from core.ground.files import parsed_json

MAGIC = b"PSS1"
"""The format and its version."""
MOST_BYTES = 1 << 18
"""A stream of the longest windows, 4,096 rows of ten float32, has 164 kB."""
LARGEST_NUMBER = 1e6
"""The largest value of a filter or a row: readings are at most 1e4."""
_HEAD = struct.Struct("<4sII")
_MOST_HEAD = 1 << 16
_TYPES = ("<f4", "<f8")
_MOST_COUNT = 2**53

Value = str | int | float | bool | None | Sequence[Any]
Part = Value | NDArray[Any]


def packed(state: Mapping[str, Part]) -> bytes | None:
    """Return the parts as bytes, or None where they are more than `MOST_BYTES`."""
    arrays = {
        name: np.ascontiguousarray(part)
        for name, part in state.items()
        if isinstance(part, np.ndarray)
    }
    head = {
        "values": {name: part for name, part in state.items() if not isinstance(part, np.ndarray)},
        "arrays": [
            [name, array.dtype.newbyteorder("<").str, list(array.shape)]
            for name, array in arrays.items()
        ],
    }
    written = json.dumps(head, separators=(",", ":"), allow_nan=False).encode()
    content = written + b"".join(
        array.astype(array.dtype.newbyteorder("<")).tobytes() for array in arrays.values()
    )
    packed_bytes = _HEAD.pack(MAGIC, len(written), zlib.crc32(content)) + content
    if len(packed_bytes) <= MOST_BYTES and len(written) <= _MOST_HEAD:
        return packed_bytes
    return None


class UnpackedState:
    """The parts of a state that came back.

    Each method raises UsageError, in one line, for what it does not expect.
    """

    def __init__(self, content: bytes) -> None:
        if not _HEAD.size <= len(content) <= MOST_BYTES:
            raise _bad(f"at most {MOST_BYTES} bytes", f"{len(content)}")
        magic, length, checksum = _HEAD.unpack_from(content)
        rest = memoryview(content)[_HEAD.size :]
        if magic != MAGIC:
            raise _bad("a state of this version of the service", "another text")
        if zlib.crc32(rest) != checksum or length > min(len(rest), _MOST_HEAD):
            raise _bad("a state as the service gave it", "a damaged one")
        try:
            head = parsed_json(bytes(rest[:length]), parse_constant=_no_number)
            self._values, arrays = dict(head["values"]), list(head["arrays"])
        except (ValueError, KeyError, TypeError):
            raise _bad("a head of JSON with values and arrays", "another one") from None
        self._arrays = _arrays(arrays, rest[length:])

    def value(self, name: str) -> Any:
        """Return a value as it is."""
        if name not in self._values:
            raise _bad(f"the part {name}", "none")
        return self._values[name]

    def count(self, name: str, most: int = _MOST_COUNT) -> int:
        """Return a whole number from 0 to `most`."""
        value = self.value(name)
        if type(value) is not int or not 0 <= value <= most:
            raise _bad(f"{name} from 0 to {most}", shown(value))
        return value

    def flag(self, name: str) -> bool:
        """Return a truth value."""
        value = self.value(name)
        if not isinstance(value, bool):
            raise _bad(f"{name}: true or false", shown(value))
        return value

    def array(
        self,
        name: str,
        kind: type[np.floating[Any]],
        shape: Sequence[int | None],
        largest: float = LARGEST_NUMBER,
    ) -> NDArray[Any]:
        """Return a copy of an array of finite numbers up to `largest`.

        None in `shape` is any length.
        """
        stored = self._arrays.get(name)
        fits = (
            stored is not None
            and stored.dtype == np.dtype(kind).newbyteorder("<")
            and stored.ndim == len(shape)
        )
        if (
            stored is None
            or not fits
            or any(
                expected_size is not None and size != expected_size
                for size, expected_size in zip(stored.shape, shape, strict=False)
            )
        ):
            if stored is None:
                actual = "none"
            else:
                actual = f"{stored.dtype} {stored.shape}"
            lengths = tuple("any" if length is None else length for length in shape)
            raise _bad(f"{name}: {np.dtype(kind)} {lengths}", actual)
        if not (np.abs(stored) <= largest).all():
            raise _bad(f"{name}: finite numbers up to {largest:g}", "others")
        return stored.astype(kind)

    def has(self, name: str) -> bool:
        """Return whether there is such an array."""
        return name in self._arrays


def refuse(expected: str, actual: object) -> UsageError:
    """Return the error for a state that is another one than expected."""
    return _bad(expected, shown(actual))


def number(value: object, largest: float, what: str) -> float:
    """Return a finite number up to `largest`. Raises UsageError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= largest:
        raise _bad(f"{what}: a number up to {largest:g}", shown(value))
    return float(value)


def shown(value: object) -> str:
    """Return what came, in a few characters."""
    return f"{value!r:.60}"


def _arrays(listed: Sequence[Any], rest: memoryview) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    at = 0
    for entry in listed:
        try:
            name, kind, shape = entry
            sizes_fit = all(type(size) is int and 0 <= size <= MOST_BYTES for size in shape)
            if kind not in _TYPES or len(shape) > 4 or not sizes_fit:
                raise ValueError
            arrays[name] = np.frombuffer(rest, kind, math.prod(shape), at).reshape(shape)
        except (OverflowError, TypeError, ValueError):
            raise _bad("arrays of a name, a type, a shape and its bytes", shown(entry)) from None
        at += arrays[name].nbytes
    if at != len(rest):
        raise _bad("nothing behind the arrays", f"{len(rest) - at} bytes")
    return arrays


def _no_number(word: str) -> float:
    raise ValueError(word)


def _bad(expected: str, actual: str) -> UsageError:
    return UsageError(f"resume: expected {expected}, got {actual}: begin a new session without it")
