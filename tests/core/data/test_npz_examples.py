"""Somebody's own arrays of any shape in an `.npz`."""

import zipfile
from typing import Any

import numpy as np
import pytest

from core.data import npz_arrays
from core.data.dataset import Array
from tests.core.data.desk import Desk, has, wrong
from tests.core.data.npz_files import RANDOM, Arrays, changed, cut, examples

ARRAY = (4, 5, 3)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("shape", "dtype"), [((), "int64"), ((7,), "float32"), (ARRAY, "uint8"), ((2,) * 5, "<i2")]
)
def test_inputs_of_any_shape_come_as_they_are(
    desk: Desk, shape: tuple[int, ...], dtype: str, packed: bool
) -> None:
    content = examples(*shape, dtype=dtype)
    path = desk.write("own.npz", content)
    if not packed:
        np.savez(path, **content)
    stored = np.dtype(dtype).name
    has(
        desk.read(path),
        name="own",
        task="classification",
        standardized=False,
        inputs=Array(f"inputs.{stored}", stored, shape),
        labels=("0", "1", "2"),
        windows=np.concatenate([content["x_train"], content["x_test"]]).tolist(),
        classes=[0, 1, 2] * 6,
    )


def test_values_labels_and_weights(desk: Desk) -> None:
    content = examples(7, dtype="float64") | {"weight_train": np.arange(12.0), "standardized": True}
    content |= {"y_train": np.linspace(0, 1, 12), "y_test": np.linspace(0, 1, 6)}
    curve = desk.read("curve.npz", content)
    has(
        curve,
        task="regression",
        targets=Array("targets.float32", "float32", (1,)),
        standardized=True,
        inputs=Array("inputs.float32", "float32", (7,)),
    )
    assert curve.weights is not None
    assert curve.mapped(curve.weights)[:12].tolist() == list(range(12))
    tags = cut(np.zeros((18, 7)), RANDOM.integers(0, 2, (18, 2)))
    tags |= {"task": "multilabel", "labels": ["a", "b"]}
    has(desk.read("tags.npz", tags), task="multilabel", labels=("a", "b"), outputs=2)
    windows = examples(16, 3, dtype="float32") | {"task": ["regression"]}
    has(desk.read("windows.npz", windows), task="regression")


Y = np.arange(18 * 16).reshape(18, 16) % 3


@pytest.mark.parametrize("x", [np.zeros((18, 16), int), np.ones((18, 16, 3), np.float32)])
@pytest.mark.parametrize("names", [["0", "1", "2"], ["x", "y", "z"]])
def test_a_class_at_each_position(desk: Desk, x: Any, names: list[str]) -> None:
    y = Y if names[0] == "0" else np.array(names)[Y]
    has(
        desk.read("tags.npz", cut(x, y)),
        task="classification",
        targets=Array("targets.int32", "int32", (16,)),
        standardized=False,
        labels=tuple(names),
        classes=Y.tolist(),
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"y_test": np.where(np.arange(96).reshape(6, 16) == 18, 7, Y[12:])},
            "y_test[1, 2]: expected one of 0, 1, 2, got 7",
        ),
        (
            {"y_test": Y[12:, :4]},
            "y_test: expected classes of shape (16,) an example as in y_train, got (4,)",
        ),
        (
            {"y_train": Y[:12] % 2, "y_test": Y[12:] % 2},
            "y_train: ... got 0 and 1 ... name both classes in labels",
        ),
    ],
)
def test_wrong_classes_at_positions_are_named(
    desk: Desk, changes: dict[str, Any], said: str
) -> None:
    desk.refuses(said, "tags.npz", cut(np.zeros((18, 16), int), Y) | changes)


@wrong("npz examples")
def test_what_cannot_be_used_is_one_error_that_names_array_and_remedy(
    desk: Desk, row: Arrays
) -> None:
    desk.refuses(f"own.npz: ... {row['says']}", "own.npz", changed(examples(*ARRAY), row))


def test_a_member_that_is_cut_short_or_damaged_is_named(desk: Desk) -> None:
    path = desk.write("whole.npz", {})
    np.savez(path, **examples(*ARRAY))
    with zipfile.ZipFile(path) as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    with zipfile.ZipFile(desk.folder / "cut.npz", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content[:-200] if name == "x_test.npy" else content)
    desk.refuses("cut.npz: x_test[2]: expected 6 examples, got 2: cut short; save it", "cut.npz")
    flipped = bytearray(path.read_bytes())
    flipped[flipped.index(members["x_train.npy"][-300:])] ^= 1
    desk.refuses("not a complete .npz file (Bad CRC", "flipped.npz", bytes(flipped))


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        ("LARGEST_EXAMPLE_BYTES", "x_train: an example has 120 bytes, at most 100 are read"),
        ("LARGEST_TOTAL_BYTES", "own.npz: unpacks to ... bytes, more than 100; save fewer"),
    ],
)
def test_what_would_fill_the_memory_is_refused(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, bound: str, said: str
) -> None:
    monkeypatch.setattr(npz_arrays, bound, 100)
    desk.refuses(said, "own.npz", examples(5, 6, 1, dtype="float32"))
