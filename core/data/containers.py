"""Arrays of other libraries as plain arrays.

What carries more than numbers is refused by name, not stripped.

A mask, a unit, named dimensions, an index of rows, the palette of an image: numpy drops them
without a word, and the numbers that stay mean something else. Libraries are recognized by what
their objects have, so none is imported.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.ground.errors import DataError, reason_of

_SCALING = ("scale_factor", "add_offset", "_FillValue", "missing_value")
"""Attributes by the conventions of NetCDF whose numbers are not yet the values."""
_PLAIN = (np.ndarray, np.memmap, np.matrix, np.rec.recarray)
_LOOKED_AT = (bool, int, float, complex, str, bytes, np.generic)


def plain(values: Any, where: str) -> NDArray[Any]:
    """Return an array of the numbers.

    Raises DataError for a container that says more, and for what is no array.
    """
    refuse_more(values, where)
    try:
        array = np.asarray(values)
    except Exception as problem:  # each library raises what it likes
        if "inhomogeneous" in str(problem):
            description = "rows of unequal length"
        else:
            description = f"{_of(values)} ({reason_of(problem):.120})"
        raise DataError(
            f"{where}: expected an array, got {description}; give all examples one shape, as"
            " numbers"
        ) from None
    return array


def refuse_more(values: Any, where: str) -> None:
    """Raises DataError for a container with more than numbers, also inside of a list."""
    if isinstance(values, list | tuple):
        for kind, item in {type(item): item for item in values}.items():
            if not issubclass(kind, _LOOKED_AT) and (wrong := _more(item)) is not None:
                raise DataError(f"{where}: {_of(item)} {wrong}")
        if any(isinstance(item, np.ma.MaskedArray) and np.ma.is_masked(item) for item in values):
            raise DataError(f"{where}: numpy's MaskedArray {_MASKED}")
        return
    wrong = _more(values)
    if wrong is not None:
        raise DataError(f"{where}: {_of(values)} {wrong}")


def refuse_other_rows(first: Any, second: Any, names: str) -> None:
    """Raise DataError where two tables of pandas differ in their rows, by their index.

    The same rows in the same order are expected.
    """
    indices: list[Any] = [getattr(values, "index", None) for values in (first, second)]
    if any(not hasattr(index, "equals") for index in indices):
        return
    if not indices[0].equals(indices[1]):
        raise DataError(
            f"{names}: expected the same rows in the same order, got tables with other indices;"
            " give the second as .loc[first.index], or both as .to_numpy() if their order is right"
        )


def refuse_other_columns(first: Any, second: Any, names: str) -> None:
    """Raise DataError where two tables of pandas differ in their columns or their order."""
    columns: list[Any] = [getattr(values, "columns", None) for values in (first, second)]
    if any(not hasattr(index, "equals") for index in columns):
        return
    if not columns[0].equals(columns[1]):
        raise DataError(
            f"{names}: expected the same columns in the same order, got {_listed(columns[0])} and "
            f"{_listed(columns[1])}; give the second as [first.columns]"
        )


_MASKED = "has masked values; remove these examples, or give .filled(value)"


def _more(values: Any) -> str | None:
    """Return what an object has beside its numbers, and what to give; None for a plain one."""
    if isinstance(values, np.ma.MaskedArray):
        if np.ma.is_masked(values):
            return _MASKED
        return None
    if isinstance(values, np.ndarray):
        return _of_numpy(values)
    for judge in (_of_units, _of_layout, _of_torch, _of_table, _of_image, _of_file):
        wrong = judge(values)
        if wrong is not None:
            return wrong
    return None


def _of_numpy(values: NDArray[Any]) -> str | None:
    if values.dtype.names:
        return "has named fields; give numpy.lib.recfunctions.structured_to_unstructured of it"
    if type(values) in _PLAIN:
        return None
    unit = getattr(values, "unit", getattr(values, "units", None))
    if unit is not None:
        return f"has the unit {unit!s:.40}; convert it to the unit you mean and give its .value"
    return (
        "is more than an array to its library; give np.array(x) of it if its numbers are all that"
        " counts"
    )


def _of_units(values: Any) -> str | None:
    if hasattr(values, "magnitude") and hasattr(values, "units"):
        return (
            f"has the unit {values.units!s:.40}; convert it to the unit you mean and give its"
            " .magnitude"
        )
    return None


def _of_layout(values: Any) -> str | None:
    """Judge sparse, ragged and labelled ones."""
    if hasattr(values, "toarray") or hasattr(values, "todense"):
        return f"is sparse; give .{'toarray' if hasattr(values, 'toarray') else 'todense'}()"
    if hasattr(values, "dense_shape") and hasattr(values, "indices"):
        return "is sparse; give tf.sparse.to_dense of it"
    if hasattr(values, "row_splits") and hasattr(values, "to_tensor"):
        return "is ragged; give .to_tensor(), which pads its rows, or cut them to one length"
    if hasattr(values, "dims") and hasattr(values, "coords"):
        remedy = ".to_array(), transposed to (examples, ...), and of that .values"
        if not hasattr(values, "data_vars"):
            remedy = ".values, transposed to (examples, ...)"
        return f"names its axes {_listed(values.dims)}; give its {remedy}"
    return None


def _of_torch(values: Any) -> str | None:
    if not hasattr(values, "detach") or not hasattr(values, "device"):
        return None
    if getattr(values, "is_sparse", False):
        return "is sparse; give .to_dense()"
    if getattr(values, "is_quantized", False):
        return "is quantized; give .dequantize()"
    device = getattr(values.device, "type", "cpu")
    if device != "cpu":
        return f"lies on {device}; give .detach().cpu()"
    if getattr(values, "requires_grad", False):
        return "has a gradient; give .detach()"
    if any(name is not None for name in getattr(values, "names", ())):
        return "names its axes; give .rename(None), with the examples first"
    return None


def _of_table(values: Any) -> str | None:
    """Judge tables and columns of pandas; NaN in plain floats is found with the row that has it."""
    if not hasattr(values, "isna") or not hasattr(values, "index"):
        return None
    missing = np.asarray(values.isna())
    if missing.any():
        row = int(np.argmax(missing.reshape(len(missing), -1).any(axis=1)))
        return (
            f"has a missing value in row {row}; fill it in (.fillna), or remove the row from x"
            " and y"
        )
    noted = [key for key in getattr(values, "attrs", {}) if str(key).lower().startswith("unit")]
    kinds = [str(kind) for kind in np.atleast_1d(np.asarray(getattr(values, "dtypes", ()), object))]
    unit = next((kind for kind in kinds if kind.startswith("pint")), None)
    if noted or unit:
        evidence = unit or f"attrs {noted[0]!r}"
        return (
            f"has units ({evidence:.60}); convert it to the units you mean and give .to_numpy() of"
            " its numbers"
        )
    return None


def _of_image(values: Any) -> str | None:
    if hasattr(values, "getpalette") and getattr(values, "mode", "") in ("P", "PA"):
        return "has its colours in a palette; give .convert('RGB')"
    return None


def _of_file(values: Any) -> str | None:
    """Judge files of arrays, as HDF5 and Zarr, whose attributes change what the numbers mean."""
    attributes = getattr(values, "attrs", None)
    if not hasattr(values, "chunks") or not isinstance(attributes, Mapping):
        return None
    scaling = [name for name in _SCALING if name in attributes]
    if scaling:
        return f"says {scaling[0]} of its numbers; apply it and give the values"
    return None


def _of(values: Any) -> str:
    kind = type(values)
    return f"{kind.__module__.partition('.')[0]}'s {kind.__name__}"


def _listed(names: Any) -> str:
    return f"({', '.join(map(str, names))})"[:120]
