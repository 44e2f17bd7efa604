"""Somebody's own arrays of any shape in an `.npz`."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cluster.data import Dataset, find_source, prepare
from cluster.errors import DataError

Arrays = dict[str, Any]
RANDOM = np.random.default_rng(2)


def sample(*shape: int, dtype: str = "uint8") -> Arrays:
    """Three classes, twelve examples for training and six for the test."""
    x = RANDOM.integers(0, 200, (18, *shape)).astype(dtype)
    y = np.arange(18) % 3
    return {"x_train": x[:12], "y_train": y[:12], "x_test": x[12:], "y_test": y[12:]}


def read(path: Path, cache: Path, content: Arrays, *, packed: bool = True) -> Dataset:
    (np.savez_compressed if packed else np.savez)(path, **content)
    return prepare(find_source(str(path), {}, path, path), cache=cache)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("shape", "dtype"), [((), "int64"), ((7,), "float32"), ((4, 5, 3), "uint8"), ((2,) * 5, "<i2")]
)
def test_inputs_of_any_shape_come_as_they_are(tmp_path: Path, shape: tuple[int, ...], dtype: str, packed: bool) -> None:
    content = sample(*shape, dtype=dtype)
    dataset = read(tmp_path / "own.npz", tmp_path / "cache", content, packed=packed)
    assert (dataset.name, dataset.task, dataset.standardized) == ("own", "classification", False)
    assert (dataset.inputs.dtype, dataset.input_shape, dataset.labels) == (np.dtype(dtype).name, shape, ("0", "1", "2"))
    np.testing.assert_array_equal(dataset.windows(), np.concatenate([content["x_train"], content["x_test"]]))
    np.testing.assert_array_equal(dataset.classes(), np.arange(18) % 3)


def test_classes_subjects_and_names_are_as_those_of_windows(tmp_path: Path) -> None:
    names = np.array(["cat", "ape", "bee"])
    content = sample(4, 5, 3) | {"subject_train": np.repeat([1, 2], 6), "subject_test": np.full(6, 3)}
    for part in ("train", "test"):
        content[f"y_{part}"] = names[content[f"y_{part}"]]
    dataset = read(tmp_path / "own.npz", tmp_path / "cache", content)
    assert dataset.labels == ("ape", "bee", "cat")
    assert dataset.classes()[:3].tolist() == [2, 0, 1]
    assert dataset.subjects().tolist() == [1] * 6 + [2] * 6 + [3] * 6


def test_values_labels_and_weights(tmp_path: Path) -> None:
    content = sample(7, dtype="float64") | {"weight_train": np.arange(12.0), "standardized": np.array(True)}
    content |= {"y_train": np.linspace(0, 1, 12), "y_test": np.linspace(0, 1, 6)}
    curve = read(tmp_path / "curve.npz", tmp_path / "cache", content)
    assert (curve.task, curve.targets.shape, curve.standardized, curve.inputs.dtype) == (
        "regression", (1,), True, "float32",
    )  # fmt: skip
    assert curve.weights is not None
    assert curve.mapped(curve.weights)[:12].tolist() == list(range(12))
    content = sample(7) | {"task": np.array("multilabel"), "labels": np.array(["a", "b"])}
    content |= {"y_train": RANDOM.integers(0, 2, (12, 2)), "y_test": RANDOM.integers(0, 2, (6, 2))}
    tags = read(tmp_path / "tags.npz", tmp_path / "cache", content)
    assert (tags.task, tags.labels, tags.outputs) == ("multilabel", ("a", "b"), 2)
    windows = sample(16, 3, dtype="float32") | {"task": np.array(["regression"])}
    assert read(tmp_path / "windows.npz", tmp_path / "cache", windows).task == "regression"


def test_a_class_at_each_position(tmp_path: Path) -> None:
    y = np.arange(18 * 16).reshape(18, 16) % 3
    for x in (RANDOM.integers(0, 9, (18, 16)), RANDOM.normal(size=(18, 16, 3)).astype("float32")):
        tags = {"x_train": x[:12], "y_train": y[:12], "x_test": x[12:], "y_test": y[12:]}
        found = read(tmp_path / "tags.npz", tmp_path / "cache", tags)
        assert (found.task, found.targets.shape, found.standardized) == ("classification", (16,), False)
        np.testing.assert_array_equal(found.classes(), y)
        names = np.array(["x", "y", "z"])
        spoken = read(
            tmp_path / "words.npz", tmp_path / "cache", tags | {"y_train": names[y[:12]], "y_test": names[y[12:]]}
        )
        assert spoken.labels == ("x", "y", "z")
        np.testing.assert_array_equal(spoken.classes(), y)
    with pytest.raises(DataError, match=r"y_test\[1, 2\]: expected one of 0, 1, 2, got 7"):
        read(
            tmp_path / "tags.npz",
            tmp_path / "cache",
            tags | {"y_test": np.where(np.arange(96).reshape(6, 16) == 18, 7, y[12:])},
        )
    with pytest.raises(
        DataError, match=r"y_test: expected classes of shape \(16,\) an example as in y_train, got \(4,\)"
    ):
        read(tmp_path / "tags.npz", tmp_path / "cache", tags | {"y_test": y[12:, :4]})
    with pytest.raises(DataError, match=r"y_train: .* got 0 and 1 .* name both classes in labels"):
        read(tmp_path / "tags.npz", tmp_path / "cache", tags | {"y_train": y[:12] % 2, "y_test": y[12:] % 2})


def put(name: str, value: Any) -> Callable[[Arrays], None]:
    def damage(content: Arrays) -> None:
        content[name] = value

    return damage


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda content: content.pop("y_test"), "y_test is missing"),
        (put("x_train", np.zeros((12, 4, 5, 3), complex)), "x_train: expected (examples, ...) numbers, got complex128"),
        (put("x_test", np.zeros((6, 4, 5, 4), np.uint8)), "x_test: expected examples of shape (4, 5, 3) as in x_train"),
        (
            put("x_test", np.zeros((6, 4, 5, 3))),
            "x_test[0]: expected dtype uint8 as in the examples before, got float32",
        ),
        (
            put("x_train", np.asfortranarray(np.zeros((12, 4, 5, 3), np.uint8))),
            "got columns; save np.ascontiguousarray",
        ),
        (put("y_train", np.arange(11)), "y_train: expected shape (12,), one for each"),
        (put("y_train", np.eye(3)[np.arange(12) % 3]), "one-hot classes: give y.argmax(axis=1)"),
        (put("y_train", np.array([None] * 12)), "y_train: cannot be read"),
        (put("y_test", np.full(6, 3)), "y_test[0]: expected one of 0, 1, 2, got 3"),
        (put("labels", np.array(list("abcd"))), "class 3 ('d') has no training example"),
        (put("task", np.array("ranking")), "task: expected classification, multilabel, regression, got ranking"),
        (put("task", np.array(3)), "task: expected classification"),
        (put("standardized", np.array(3)), "standardized: expected true or false, got int64"),
        (put("weight_train", np.ones(11)), "weight_train: expected shape (12,), got (11,)"),
        (put("weight_train", -np.ones(12)), "weights[0]: expected a finite weight from 0"),
        (put("subject_test", np.full(7, 3)), "subject_test: expected shape (6,)"),
    ],
)
def test_what_cannot_be_used_is_one_error_that_names_array_and_remedy(
    tmp_path: Path, damage: Callable[[Arrays], None], expected: str
) -> None:
    content = sample(4, 5, 3)
    damage(content)
    with pytest.raises(DataError) as caught:
        read(tmp_path / "own.npz", tmp_path / "cache", content)
    assert expected in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'own.npz'}: ")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").glob("*"))


def test_a_number_that_is_none_is_found_by_its_index(tmp_path: Path) -> None:
    content = sample(4, 5, 3, dtype="float32")
    content["x_test"][2, 3, 4, 1] = np.inf
    with pytest.raises(DataError, match=r"own\.npz: x_test\[2, 3, 4, 1\]: expected a finite float32 number, got inf"):
        read(tmp_path / "own.npz", tmp_path / "cache", content)


def test_a_member_that_is_cut_short_or_damaged_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "whole.npz", **sample(4, 5, 3))
    with zipfile.ZipFile(tmp_path / "whole.npz") as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    with zipfile.ZipFile(tmp_path / "cut.npz", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content[:-200] if name == "x_test.npy" else content)
    with pytest.raises(DataError, match=r"cut\.npz: x_test\[2\]: expected 6 examples, got 2: cut short; save it again"):
        prepare(find_source(str(tmp_path / "cut.npz"), {}, tmp_path, tmp_path), cache=tmp_path / "cache")
    flipped = bytearray((tmp_path / "whole.npz").read_bytes())
    at = flipped.index(members["x_train.npy"][-300:])
    flipped[at] ^= 1
    (tmp_path / "flipped.npz").write_bytes(flipped)
    with pytest.raises(DataError, match=r"flipped\.npz: not a complete \.npz file \(Bad CRC"):
        prepare(find_source(str(tmp_path / "flipped.npz"), {}, tmp_path, tmp_path), cache=tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*"))


@settings(max_examples=40, deadline=None)
@given(
    content=st.dictionaries(
        st.sampled_from(["y_train", "x_test", "y_test", "labels", "task", "standardized", "weight_train"]),
        arrays.arrays(
            dtype=st.sampled_from(["<f4", "<f8", "<i8", "|b1", "<U3", "<c8", "|S2"]),
            shape=arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
        ),
        max_size=3,
    )
)
def test_no_file_ends_in_anything_but_examples_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, content: Arrays
) -> None:
    folder = tmp_path_factory.mktemp("npz")
    said = str(folder / "any.npz")
    try:
        dataset = read(folder / "any.npz", folder / "cache", sample(4, 5, 3) | content)
        assert dataset.rows == len(dataset.windows()) == len(dataset.target_values())
    except DataError as problem:
        said = str(problem)
    assert said.startswith(str(folder / "any.npz"))
    assert "\n" not in said
