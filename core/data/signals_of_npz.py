"""What an `.npz` says of its channels.

All optional: `channels`: text, a name for each; `units`: text, one for each, or one for all;
`sampling_hz`: steps a second, a number; `filters`: `two-way` or `causal`, text.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.signals import CAUSAL, FILTERS, LEAST_HZ, MOST_HZ, Signals
from core.ground.errors import DataError

KEYS = ("channels", "units", "sampling_hz", "filters")
LONGEST_NAME = 80


def signals_of(path: Path, arrays: Mapping[str, NDArray[Any]], width: int) -> Signals:
    """Return facts of `width` channels. Raises DataError naming the array and the remedy."""
    channels = _names(path, arrays, "channels", width)
    if len(set(channels)) != len(channels):
        raise DataError(
            f"{path}: channels: expected different names, got {', '.join(channels):.120};"
            " rename one"
        )
    units_array = arrays.get("units")
    if units_array is not None and units_array.size == 1:
        arrays = {**arrays, "units": np.repeat(units_array.reshape(-1), width)}
    units = _names(path, arrays, "units", width)
    return Signals(channels, units, _sampling_hz(path, arrays), _filters(path, arrays))


def _names(path: Path, arrays: Mapping[str, NDArray[Any]], key: str, width: int) -> tuple[str, ...]:
    array = arrays.get(key)
    if array is None:
        return ()
    if array.dtype.kind != "U" or array.shape != (width,):
        raise DataError(
            f"{path}: {key}: expected text, one for each of {width} channels, got {_dtype_and_shape(array)};"
            f" save {key}=np.array([...]) with {width} texts"
        )
    names = tuple(str(name).strip() for name in array)
    if not all(name and len(name) <= LONGEST_NAME and name.isprintable() for name in names):
        raise DataError(
            f"{path}: {key}: expected texts of 1 to {LONGEST_NAME} letters, got {names!r:.120};"
            " name each"
        )
    return names


def _sampling_hz(path: Path, arrays: Mapping[str, NDArray[Any]]) -> float | None:
    array = arrays.get("sampling_hz")
    if array is None:
        return None
    if array.size == 1 and array.dtype.kind in "fiu":
        rate = array.reshape(-1)[0]
    else:
        rate = None
    if rate is None or not LEAST_HZ <= rate <= MOST_HZ:
        raise DataError(
            f"{path}: sampling_hz: expected one number from {LEAST_HZ:g} to {MOST_HZ:g}, got "
            f"{_dtype_and_shape(array) if rate is None else rate}; save sampling_hz=np.array(50.0)"
        )
    return float(rate)


def _filters(path: Path, arrays: Mapping[str, NDArray[Any]]) -> str | None:
    array = arrays.get("filters")
    if array is None:
        return None
    filters = _dtype_and_shape(array)
    if array.size == 1 and array.dtype.kind == "U":
        filters = str(array.reshape(-1)[0])
    if filters not in FILTERS:
        raise DataError(
            f"{path}: filters: expected {' or '.join(FILTERS)}, got {filters:.60}; save"
            f" filters=np.array('{CAUSAL}'), or leave it out"
        )
    return filters


def _dtype_and_shape(array: NDArray[Any]) -> str:
    return f"{array.dtype} of shape {array.shape}"
