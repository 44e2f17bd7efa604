"""Standardization from the training rows, and windows as a worker's graph sees them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from core.data import Dataset, Source, prepare
from core.data.prepare import Data, batches_of, write_examples
from core.ground.lazy import tf
from tests.worker_node.batches import Floats
from worker_node.recordings import Standardization, WorkerWindows, standardized_channels


def dataset(tmp_path: Path, x: Floats | None = None) -> Dataset:
    """These windows or drawn ones; the last hundred are not trained on."""
    if x is None:
        drawn = np.random.default_rng(1).normal(size=(700, 8, 3))
        x = (drawn * [1.0, 5.0, 0.0] + [0.0, 100.0, 7.0]).astype(np.float32)
    y = np.arange(len(x)) % 2
    parts = {"x_train": x[:-100], "y_train": y[:-100], "x_test": x[-100:], "y_test": y[-100:]}
    np.savez(tmp_path / "d.npz", **parts)  # type: ignore[arg-type]
    return prepare(Source("npz", tmp_path / "d.npz", "test"), cache=tmp_path / "cache")


def test_mean_and_deviation_are_those_of_the_rows(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    rows = np.arange(3, 580)
    found = Standardization.of_rows(data, rows)
    windows = np.asarray(data.windows()[rows], np.float64)
    assert_allclose(found.mean, windows.mean((0, 1)), rtol=1e-6, atol=1e-7)
    assert_allclose(found.deviation[:2], windows.std((0, 1))[:2], rtol=1e-5)
    assert found.deviation[2] == 1.0  # a channel that never moves is not blown up


def test_what_float32_rounds_is_no_movement(tmp_path: Path) -> None:
    """A field that stands still at 48.7 moves by its last bits, 3e-5, and is not scaled."""
    still = np.float32(48.7)
    x = np.full((130, 8, 3), still)
    x[::2] += 8 * np.spacing(still)
    found = Standardization.of_rows(dataset(tmp_path, x), np.arange(30))
    assert_array_equal(found.deviation, np.ones(3))


def test_a_worker_sees_standardized_windows_and_their_classes(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    standardization = Standardization(
        np.array([1, 2, 3], np.float32), np.array([2, 4, 0.5], np.float32)
    )
    rows = np.array([699, 0, 5, 5], np.int32)
    windows, classes = WorkerWindows(data).gather(
        tf.constant(rows), tf.constant(standardization.packed())
    )
    expected = (np.asarray(data.windows())[rows] - standardization.mean) / standardization.deviation
    assert_allclose(windows, expected, rtol=1e-6)
    assert_array_equal(classes, data.classes()[rows])


def test_rows_are_those_of_one_set_in_one_standardization(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    rows = tf.constant([3, 5])
    sources = set()
    for one in (data, replace(data, sha256="another"), replace(data, folder=tmp_path / "another")):
        for moment in (1.0, 2.0):
            moments = tf.constant([[moment] * 3, [1.0] * 3])
            identified = WorkerWindows(one).identified(rows, moments)
            again = WorkerWindows(one).identified(rows, moments)
            assert_array_equal(identified.source, again.source)
            sources.add(tuple(identified.source.numpy()))
            assert (identified.rows is rows, identified.total) == (True, data.rows)
    assert len(sources) == 6


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "int16", "uint16", "int32", "int64", "float16", "float32"]
)
def test_other_examples_come_as_they_are_with_their_weights(tmp_path: Path, dtype: str) -> None:
    x = np.arange(10 * 4 * 3).reshape(10, 4, 3, 1).astype(dtype)
    y = np.arange(20.0).reshape(10, 2)
    given = Data(x[:8], y[:8], x[8:], y[8:], weights=np.arange(8))
    batches, labels = batches_of(given, "regression")
    data = write_examples(batches, tmp_path, name="x", source="x", task="regression", labels=labels)
    worker = WorkerWindows(data)
    rows = np.array([9, 0, 3], np.int32)
    nothing = Standardization.of_rows(data, rows).packed()
    assert nothing.dtype == np.float32
    assert (nothing.shape, standardized_channels(data)) == ((2, 0), 0)
    graph = tf.function(
        lambda rows, packed: (*worker.gather(rows, packed), worker.gather_weights(rows))
    )
    inputs, targets, weights = graph(tf.constant(rows), tf.constant(nothing))
    assert [each.dtype for each in (inputs, targets, weights)] == [dtype, "float32", "float32"]
    assert_array_equal(inputs, x[rows])
    assert_array_equal(targets, y[rows])
    assert weights.numpy().tolist() == [1, 0, 3]
