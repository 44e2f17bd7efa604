"""What a worker remembers between two calls, for whom, and when an offer becomes the memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from core.engine.runtime import trace, transient
from core.engine.workers import OVERTAKEN
from core.ground.lazy import tf
from worker_node.sender import Remembered, WorkerMemory


def owner(number: int) -> NDArray[np.int64]:
    """A run of this number, whose shards were never fenced."""
    return np.array([number, 0], np.int64)


def offering(rows: int, size: int) -> Callable[..., Any]:
    """A call that offers what was offered before plus `value`; tells what it found."""
    memory = WorkerMemory(rows, size)

    def call(owner: Any, value: Any) -> Any:
        turn = memory.next_turn(owner)
        then = Remembered(turn.offered.rows + value, turn.offered.count + 1)
        with tf.control_dependencies([memory.offer(owner, turn, turn.offered, then)]):
            numbers = [
                turn.number,
                turn.offered_turn,
                turn.previous.count,
                turn.offered.count,
                turn.sender,
            ]
            return turn.previous.rows, turn.offered.rows, tf.stack(numbers)

    return trace(call, tf.TensorSpec([2], tf.int64), tf.TensorSpec([], tf.float32))


def test_it_begins_with_zeros_and_keeps_what_is_and_what_was_offered() -> None:
    call = offering(2, 3)
    senders = set()
    for turn in range(1, 5):
        kept, offered, numbers = call(owner(71), np.float32(1.5))
        assert_array_equal(offered, np.full((2, 3), 1.5 * (turn - 1)))
        assert_array_equal(kept, np.full((2, 3), 1.5 * max(0, turn - 2)))
        assert numbers.numpy()[:4].tolist() == [turn, turn - 1, max(0, turn - 2), turn - 1]
        senders.add(int(numbers[4]))
    assert len(senders) == 1
    assert senders.pop() > 0


def test_another_owner_begins_with_zeros_and_takes_the_place() -> None:
    call = offering(1, 4)
    call(owner(81), np.float32(5.0))
    senders = set()
    for number in (82, 81, 82):
        kept, offered, numbers = call(owner(number), np.float32(1.0))
        assert not kept.numpy().any()
        assert not offered.numpy().any()
        assert numbers.numpy()[:4].tolist() == [1, 0, 0, 0]
        senders.add(int(numbers[4]))
    assert len(senders) == 3, "a shard must not take a new memory for the old one"


@pytest.mark.parametrize("size", [3, 9])
def test_another_runs_memory_of_another_shape_is_in_nobodys_way(size: int) -> None:
    offering(2, 6)(owner(91), np.float32(1.0))
    call = offering(1, size)
    assert call(owner(92 + size), np.float32(2.0))[1].shape == (1, size)
    assert_array_equal(call(owner(92 + size), np.float32(2.0))[1], np.full((1, size), 2.0))


def test_a_turn_without_an_offer_changes_nothing() -> None:
    """A call that fails before it pushes."""
    call = offering(1, 2)
    memory = WorkerMemory(1, 2)
    glance = trace(lambda owner: memory.next_turn(owner).number, tf.TensorSpec([2], tf.int64))
    call(owner(301), np.float32(1.0))
    assert int(glance(owner(301))) == 2
    kept, offered, numbers = call(owner(301), np.float32(1.0))
    assert (kept.numpy().max(), offered.numpy().min()) == (0.0, 1.0)
    assert numbers.numpy()[:2].tolist() == [3, 1]


def test_an_offer_fails_once_a_later_call_has_its_turn() -> None:
    memory = WorkerMemory(1, 2)

    def overtaken(owner: Any) -> Any:
        first = memory.next_turn(owner)
        with tf.control_dependencies([first.number]):
            second = memory.next_turn(owner)
        with tf.control_dependencies([second.number]):
            offered = memory.offer(
                owner,
                first,
                first.previous,
                Remembered(first.previous.rows + 9.0, first.previous.count),
            )
        with tf.control_dependencies([offered]):
            return tf.identity(first.number)

    with pytest.raises(tf.errors.InvalidArgumentError, match=OVERTAKEN) as raised:
        trace(overtaken, tf.TensorSpec([2], tf.int64))(owner(401))
    assert transient(raised.value), "it is not the item's fault"
    assert not offering(1, 2)(owner(401), np.float32(0.0))[1].numpy().any()


def test_a_call_of_an_earlier_generation_finds_zeros_and_changes_nothing() -> None:
    call = offering(1, 2)
    later, earlier = (np.array([501, generation], np.int64) for generation in (2, 1))
    call(later, np.float32(1.0))
    assert not call(earlier, np.float32(9.0))[1].numpy().any()
    _, offered, numbers = call(later, np.float32(1.0))
    assert_array_equal(offered, np.ones((1, 2)))
    assert int(numbers[0]) == 2
