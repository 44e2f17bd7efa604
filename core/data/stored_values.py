"""Numbers as the store has them, and what each of them must be, from arrays of any library.

What carries more than numbers is refused by name, not stripped: a mask, a unit, named dimensions,
an index of rows, the palette of an image. numpy drops them without a word, and the numbers that
stay mean something else. Libraries are recognized by what their objects have, so none is imported.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from core.data.arrays import AnyArray, Flags
from core.data.dataset import LARGEST_RANK, MULTILABEL, REGRESSION
from core.data.recordings import LARGEST_INTEGER, NO_SUBJECT
from core.ground.errors import DataError, reason_of

_SCALING = ("scale_factor", "add_offset", "_FillValue", "missing_value")
"""What a file of arrays says beside its numbers, by the conventions of NetCDF: they are not yet the
values."""
_PLAIN = (np.ndarray, np.memmap, np.matrix, np.rec.recarray)
_LOOKED_AT = (bool, int, float, complex, str, bytes, np.generic)


def plain(values: Any, where: str) -> AnyArray:
    """An array of the numbers.

    Raises DataError for a container that says more, and for what is no array.
    """
    refuse_more(values, where)
    try:
        array = np.asarray(values)
    except Exception as problem:  # each library raises what it likes
        if "inhomogeneous" in str(problem):
            actual = "rows of unequal length"
        else:
            actual = f"{_of(values)} ({reason_of(problem):.120})"
        raise DataError(
            f"{where}: expected an array, got {actual}; give all examples one shape, as numbers"
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
    if any(not hasattr(table, "equals") for table in columns):
        return
    if not columns[0].equals(columns[1]):
        raise DataError(
            f"{names}: expected the same columns in the same order, got {_listed(columns[0])} and "
            f"{_listed(columns[1])}; give the second as [first.columns]"
        )


_MASKED = "has masked values; remove these examples, or give .filled(value)"
_MORE = (
    (
        "magnitude units",
        "has the unit {0.units!s:.40}; convert it to the unit you mean and give its .magnitude",
    ),
    ("toarray", "is sparse; give .toarray()"),
    ("todense", "is sparse; give .todense()"),
    ("dense_shape indices", "is sparse; give tf.sparse.to_dense of it"),
    (
        "row_splits to_tensor",
        "is ragged; give .to_tensor(), which pads its rows, or cut them to one length",
    ),
    (
        "dims coords data_vars",
        "names its axes {dims}; give its .to_array(), transposed to (examples, ...), and of that"
        " .values",
    ),
    ("dims coords", "names its axes {dims}; give its .values, transposed to (examples, ...)"),
    ("detach device is_sparse!", "is sparse; give .to_dense()"),
    ("detach device is_quantized!", "is quantized; give .dequantize()"),
    ("detach device requires_grad!", "has a gradient; give .detach()"),
    ("getpalette palette!", "has its colours in a palette; give .convert('RGB')"),
)
"""What objects carry beside their numbers, by attributes that they have, or that are true where
there is a !; the first row that fits is said."""


def _more(values: Any) -> str | None:
    """What an object carries beside its numbers, and what to give instead; None for a plain one."""
    if isinstance(values, np.ma.MaskedArray):
        if np.ma.is_masked(values):
            return _MASKED
        return None
    if isinstance(values, np.ndarray):
        return _of_numpy(values)
    for attributes, text in _MORE:
        if all(_has(values, name) for name in attributes.split()):
            dims = _listed(values.dims) if "{dims}" in text else ""
            return text.format(values, dims=dims)
    return _of_torch(values) or _of_table(values) or _of_file(values)


def _has(values: Any, name: str) -> bool:
    if name.endswith("!"):
        return bool(getattr(values, name[:-1], False))
    return hasattr(values, name)


def _of_numpy(values: AnyArray) -> str | None:
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


def _of_torch(values: Any) -> str | None:
    if not hasattr(values, "detach") or not hasattr(values, "device"):
        return None
    device = getattr(values.device, "type", "cpu")
    if device != "cpu":
        return f"lies on {device}; give .detach().cpu()"
    if any(name is not None for name in getattr(values, "names", ())):
        return "names its axes; give .rename(None), with the examples first"
    return None


def _of_table(values: Any) -> str | None:
    """Tables and columns of pandas; NaN in plain floats is found with the row that has it."""
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
        named = unit or f"attrs {noted[0]!r}"
        return (
            f"has units ({named:.60}); convert it to the units you mean and give .to_numpy() of its"
            " numbers"
        )
    return None


def _of_file(values: Any) -> str | None:
    """Files of arrays, such as HDF5 and Zarr, whose attributes change what the numbers mean."""
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


MOST_CLASSES = 65_536
_STORED = {
    "float64": "float32",
    "float128": "float32",
    "bool": "uint8",
    "uint32": "int64",
    "uint64": "int64",
}
"""Types for storing numbers that have no kernels on every worker, or are wider than any model
reads."""


def targets(
    y: AnyArray, where: str, first: int, task: str, labels: Sequence[str] | None
) -> AnyArray:
    """Return targets, which are numbers as `numbers` returns them, as they are stored.

    int32 (n,) or (n, positions), uint8 (n, labels) or float32 (n, values).

    Row `first` is the first. Raises DataError for what are no targets of `task`.
    """
    if task == REGRESSION:
        narrow = y.astype(np.float32, copy=False)
        if y.ndim == 1:
            return narrow[:, None]
        return narrow
    if task == MULTILABEL:
        expected = "0 or 1 for each label, (examples, labels), or for one label, (examples,)"
        if y.ndim == 1 and np.isin(y, (0, 1)).all():
            y = y[:, None]
        if y.ndim != 2:
            raise DataError(
                f"{where}: expected {expected}, got shape {y.shape}; give one column a label"
            )
        if labels is not None and len(labels) != y.shape[1]:
            raise DataError(
                f"{where}: expected {len(labels)} columns, one a label, got {y.shape[1]}; name each"
                " label"
            )
        refuse_at(
            y, (y != 0) & (y != 1), where, first, "0 or 1", "give 1 to each label an example has"
        )
        return y.astype(np.uint8, copy=False)
    if not y.ndim or (y.ndim > 1 and y.shape[-1] <= 1):
        if y.ndim == 2:
            remedy = "give np.ravel(y)"
        else:
            remedy = "give y[..., 0]"
        raise DataError(
            f"{where}: expected one class an example, (examples,), or at each position, (examples,"
            f" positions), got shape {y.shape}; {remedy if y.ndim else 'give an array'}"
        )
    if y.dtype.kind == "f":
        refuse_at(
            y,
            y != np.floor(y),
            where,
            first,
            "a class, a whole number",
            "say task regression if it is a quantity",
        )
    if labels is None:
        count = MOST_CLASSES
        hint = "number classes from 0"
    else:
        count = len(labels)
        hint = "number classes from 0 as in labels"
    refuse_at(y, (y < 0) | (y >= count), where, first, f"a class from 0 to {count - 1}", hint)
    return y.astype(np.int32, copy=False)


def numbers(values: Any, where: str, first: int) -> AnyArray:
    """Return the values as the store has them, little-endian and finite. Raises DataError."""
    array = plain(values, where)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{where}: expected numbers, got {array.dtype}; {_unfit(array)}")
    if not array.ndim or array.ndim - 1 > LARGEST_RANK or 0 in array.shape[1:]:
        raise DataError(
            f"{where}: expected (examples, ...), got shape {array.shape}; put one example in"
            " each row"
        )
    stored = np.dtype(_STORED.get(array.dtype.name, array.dtype.name))
    if array.dtype.name == "uint64":
        refuse_at(
            array,
            array > np.iinfo(np.int64).max,
            where,
            first,
            "at most 2**63 - 1",
            "give smaller numbers",
        )
    with np.errstate(over="ignore"):
        narrow = array.astype(stored, copy=False)
    if stored.kind == "f":
        refuse_at(
            array,
            ~np.isfinite(narrow),
            where,
            first,
            f"a finite {stored} number",
            "remove or repair the example",
        )
    return narrow


def _unfit(array: AnyArray) -> str:
    if array.dtype.kind in "US":
        return "turn text into numbers first"
    if array.dtype.kind == "c":
        return "give real and imaginary parts as two channels"
    if array.dtype.kind in "mM":
        return "give seconds, or another number, instead of times"
    if array.dtype.kind == "O":
        return "give arrays of one shape and of numbers"
    return "convert it to float32"


def refuse_at(
    values: AnyArray,
    wrong: Flags,
    where: str,
    first: int,
    expected: str,
    remedy: str,
) -> None:
    """Raises DataError for the first value that is `wrong`; row `first` is the first."""
    if not wrong.any():
        return
    index = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    position = ", ".join(map(str, (int(index[0]) + first, *map(int, index[1:]))))
    actual = str(values[index])
    if values.dtype.kind == "U":
        actual = f"{actual!r:.60}"
    raise DataError(f"{where}[{position}]: expected {expected}, got {actual}; {remedy}")


class _Beside(NamedTuple):
    """What goes with each training example: the default, the type, and what values may be."""

    default: float
    dtype: str
    kinds: str
    of_kinds: str
    least: float
    most: float
    expected: str
    remedy: str


_BESIDE = {
    "groups": _Beside(
        NO_SUBJECT,
        "int32",
        "iub",
        "whole numbers",
        NO_SUBJECT,
        LARGEST_INTEGER,
        f"a group from 0 to {LARGEST_INTEGER}",
        "number the groups from 0",
    ),
    "weights": _Beside(
        1,
        "float32",
        "fiub",
        "numbers",
        0.0,
        float(np.finfo(np.float32).max),
        "a finite weight from 0",
        "give 1 to an example that counts once, 0 to one that does not count",
    ),
}


def beside_of(name: str, values: Any, count: int, where: str, first: int) -> AnyArray:
    """Return the `groups` or `weights` of `count` examples, the default for None.

    Raises DataError for what are none.
    """
    beside = _BESIDE[name]
    if values is None:
        return np.full(count, beside.default, beside.dtype)
    column = plain(values, where)
    if column.shape != (count,):
        if column.ndim == 1:
            actual = f"{first + len(column)}"
        else:
            actual = f"shape {column.shape}"
        raise DataError(
            f"{where}: expected {first + count} numbers, one for each training example, got"
            f" {actual}; give each its own"
        )
    if column.dtype.kind not in beside.kinds:
        raise DataError(f"{where}: expected {beside.of_kinds}, got {column.dtype}; {beside.remedy}")
    right = (column >= beside.least) & (column <= beside.most)
    refuse_at(column, ~right, where, first, beside.expected, beside.remedy)
    return column.astype(beside.dtype)
