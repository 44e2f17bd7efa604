"""What a person's container carries beside its numbers is refused by name.

The remedy gives the numbers.
"""

from collections.abc import Callable
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import sparse

from core.data.prepare import Batch, Data, batches_of, write_examples
from core.data.stored_values import plain, refuse_other_columns, refuse_other_rows
from core.ground.lazy import tf
from pscluster.app_folder import arrays_of
from tests.core.data.desk import refused, words

NUMBERS = np.arange(12.0).reshape(6, 2)
MASKED = (np.ma.masked_greater(NUMBERS, 9), np.ma.masked_less(NUMBERS, 1))
"""The last, or the first row alone, has a masked value."""


class Unit(np.ndarray):
    """An array with a unit, like astropy's and unyt's."""

    unit = "km"

    @property
    def value(self) -> Any:
        return np.array(self)


Has = SimpleNamespace
"""An object of any library that has these attributes."""


class Index:
    """An index like pandas'."""

    def __init__(self, *names: Any) -> None:
        self.names = names

    def __iter__(self) -> Any:
        return iter(self.names)

    def equals(self, other: "Index") -> bool:
        return self.names == other.names


class Frame:
    """A table like pandas'."""

    def __init__(
        self, index: Index, columns: Index, missing: int | None = None, **attrs: Any
    ) -> None:
        self.index = index
        self.columns = columns
        self.attrs = attrs
        self.missing = missing

    def isna(self) -> Any:
        return np.arange(len(NUMBERS))[:, None] == (-1 if self.missing is None else self.missing)


ROWS = Index(*range(6))
COLUMNS = Index("a", "b")
Y = np.arange(6) % 2


ABOUT: dict[str, Any] = {"name": "a", "source": "app", "labels": None}
PIXELS = Image.new("P", (2, 2))


@pytest.mark.parametrize(
    "way",
    [
        lambda values, _: batches_of(Data(values, Y, NUMBERS, Y)),
        lambda values, _: batches_of(Data(NUMBERS, values, NUMBERS, Y), "regression"),
        lambda values, _: batches_of(Data(NUMBERS, Y, NUMBERS, Y, weights=values)),
        lambda values, _: arrays_of(Data(values, Y, NUMBERS, Y)),
        lambda values, folder: write_examples(iter([Batch(values, Y)]), folder, **ABOUT),
        lambda values, _: list(batches_of(Data(iter([(values, 0)])))[0]),
    ],
)
def test_more_than_numbers_is_refused_at_every_way_in(
    way: Callable[[Any, Path], Any], tmp_path: Path
) -> None:
    for values in (np.ma.masked_less(NUMBERS, 1), *(list(each) for each in MASKED)):
        with refused("numpy's MaskedArray has masked values; ... .filled"):
            way(values, tmp_path)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (sparse.csr_matrix(NUMBERS), "scipy's csr_matrix is sparse; give .toarray()"),
        (lambda: tf.sparse.from_dense(NUMBERS), "is sparse; give tf.sparse.to_dense"),
        (lambda: tf.ragged.constant([[1.0], [1.0, 2.0]]), "is ragged; give .to_tensor()"),
        ([[1.0], [1.0, 2.0]], "rows of unequal length"),
        (NUMBERS.view(Unit), "Unit has the unit km; convert it ... .value"),
        (Has(magnitude=1, units="meter"), "has the unit meter; ... .magnitude"),
        ([Has(magnitude=1, units="meter")] * 6, "has the unit meter"),
        (Has(dims=("time", "axis"), coords=()), "names its axes (time, axis); give its .values"),
        (Has(detach=1, device=Has(type="cuda")), "lies on cuda; give .detach().cpu()"),
        (Has(detach=1, device="cpu", names=("n", None)), "names its axes; give .rename(None)"),
        (Has(detach=1, device="cpu", requires_grad=True), "has a gradient; give .detach()"),
        (Has(detach=1, device="cpu", is_sparse=True), "is sparse; give .to_dense()"),
        (Frame(ROWS, COLUMNS, missing=4), "has a missing value in row 4; fill it in"),
        (Frame(ROWS, COLUMNS, units="m/s2"), "has units (attrs 'units')"),
        (np.zeros(6, [("a", "f4")]), "has named fields; ... structured_to_unstructured"),
        ([PIXELS] * 6, "PIL's Image has its colours in a palette; ... convert('RGB')"),
    ],
    ids=words,
)
def test_what_an_object_says_beside_its_numbers_is_refused_by_name(values: Any, said: str) -> None:
    with refused(said):
        plain(values() if isinstance(values, FunctionType) else values, "x")


class File:
    """An array in a file, like h5py's and Zarr's."""

    shape, chunks = NUMBERS.shape, (2, 2)

    def __init__(self, **attrs: Any) -> None:
        self.attrs = attrs

    def __len__(self) -> int:
        return len(NUMBERS)

    def __getitem__(self, rows: slice) -> Any:
        return NUMBERS[rows]


def test_a_file_of_arrays_that_scales_its_numbers_is_refused() -> None:
    (batch, *_) = batches_of(Data(File(note="mine"), Y, NUMBERS, Y))[0]
    assert batch.x.tolist() == NUMBERS.tolist()
    with refused("x_train: tests's File says scale_factor of its numbers; apply it"):
        batches_of(Data(File(scale_factor=0.1), Y, NUMBERS, Y))


@pytest.mark.parametrize(
    "given",
    [
        np.ma.array,
        np.ndarray.tolist,
        lambda values: tf.constant(values),
        lambda values: values.view(Unit).value,
    ],
)
def test_what_says_no_more_is_taken(given: Callable[[Any], Any]) -> None:
    found = plain(given(NUMBERS), "x")
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, NUMBERS)


def test_tables_of_other_rows_or_columns_are_refused() -> None:
    first = Frame(ROWS, COLUMNS)
    turned = Frame(Index(*range(6)[::-1]), Index("b", "a"))
    with refused("expected the same rows in the same order, ... give the second as .loc"):
        refuse_other_rows(first, turned, "x and y")
    with refused("expected the same columns ... got (a, b) and (b, a)"):
        refuse_other_columns(first, turned, "x_train and x_test")
    refuse_other_rows(first, NUMBERS, "x and y")
    refuse_other_columns(first, Frame(ROWS, Index("a", "b")), "x_train and x_test")
