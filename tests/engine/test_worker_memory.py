"""What a worker remembers between two calls, and for whom."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cluster.engine.runtime import trace
from cluster.engine.worker_memory import Remembered, WorkerMemory

import tensorflow as tf  # isort: skip


def adding(rows: int, size: int) -> Callable[..., Any]:
    """A call that adds `value` to all that is remembered for `owner`, and tells what it found."""
    memory = WorkerMemory(rows, size)

    def call(owner: Any, value: Any) -> Any:
        found = memory.load(owner)
        now = Remembered(found.rows + value, found.count + 1)
        with tf.control_dependencies(memory.store(owner, now)):
            return tf.identity(found.rows), tf.identity(found.count)

    return trace(call, tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.float32))


def test_it_begins_with_zeros_and_remembers_for_its_owner() -> None:
    call = adding(2, 3)
    for count, expected in enumerate([0.0, 1.5, 3.0]):
        rows, calls = call(np.int64(71), np.float32(1.5))
        np.testing.assert_array_equal(rows, np.full((2, 3), expected))
        assert int(calls) == count


def test_another_owner_begins_with_zeros_and_takes_the_place() -> None:
    call = adding(1, 4)
    call(np.int64(81), np.float32(5.0))
    for owner in (82, 81):
        rows, calls = call(np.int64(owner), np.float32(1.0))
        assert not rows.numpy().any()
        assert int(calls) == 0


@pytest.mark.parametrize("size", [3, 9])
def test_another_runs_memory_of_another_shape_is_in_nobodys_way(size: int) -> None:
    adding(2, 6)(np.int64(91), np.float32(1.0))
    call = adding(1, size)
    assert call(np.int64(92 + size), np.float32(2.0))[0].shape == (1, size)
    np.testing.assert_array_equal(call(np.int64(92 + size), np.float32(2.0))[0], np.full((1, size), 2.0))


def test_no_rows_at_all_still_count() -> None:
    call = adding(0, 5)
    call(np.int64(201), np.float32(1.0))
    rows, calls = call(np.int64(201), np.float32(1.0))
    assert rows.shape == (0, 5)
    assert int(calls) == 1
