"""Standardization from the training rows, and windows as a worker's graph sees them."""

from pathlib import Path

import numpy as np

from cluster.data import Dataset, Source, prepare
from worker_node.recordings import Standardization, WorkerWindows

import tensorflow as tf  # isort: skip


def dataset(tmp_path: Path) -> Dataset:
    random = np.random.default_rng(1)
    x = (random.normal(size=(700, 8, 3)) * [1.0, 5.0, 0.0] + [0.0, 100.0, 7.0]).astype(np.float32)
    y = np.arange(700) % 2
    np.savez(tmp_path / "d.npz", x_train=x[:600], y_train=y[:600], x_test=x[600:], y_test=y[600:])
    return prepare(Source("npz", tmp_path / "d.npz", "test"), cache=tmp_path / "cache")


def test_mean_and_deviation_are_those_of_the_rows(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    rows = np.arange(3, 580)
    found = Standardization.of(data, rows)
    windows = np.asarray(data.windows()[rows], np.float64)
    np.testing.assert_allclose(found.mean, windows.mean((0, 1)), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found.deviation[:2], windows.std((0, 1))[:2], rtol=1e-5)
    assert found.deviation[2] == 1.0  # a channel that never moves is not blown up


def test_a_worker_sees_standardized_windows_and_their_classes(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    standardization = Standardization(np.array([1, 2, 3], np.float32), np.array([2, 4, 0.5], np.float32))
    rows = np.array([699, 0, 5, 5], np.int32)
    windows, classes = WorkerWindows(data).gather(tf.constant(rows), tf.constant(standardization.packed()))
    expected = (np.asarray(data.windows())[rows] - standardization.mean) / standardization.deviation
    np.testing.assert_allclose(windows, expected, rtol=1e-6)
    np.testing.assert_array_equal(classes, data.classes()[rows])
