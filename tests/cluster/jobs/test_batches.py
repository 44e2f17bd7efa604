"""Which windows each update sees."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cluster.jobs.fit import Plan, Update, chunks
from core.ground.errors import UsageError
from core.inventory import TrainJob

ROWS = np.arange(100, 203)


def plan(
    replayed: int = 0,
    seed: int = 7,
    epochs: int = 3,
    group: int = 1,
    batch_size: int = 10,
    rows: NDArray[np.integer] = ROWS,
) -> Plan:
    """Plan updates of `group` batches each."""
    job = {"mode": "local", "local": {"steps": group}, "batch_size": batch_size, "seed": seed}
    return Plan(
        TrainJob.model_validate({**job, "epochs": epochs, "replay_worst_batches": replayed}), rows
    )


@settings(deadline=None)  # the machine may stand still
@given(
    rows=st.integers(1, 300),
    batch=st.integers(1, 300),
    seed=st.integers(0, 2**31 - 1),
    epoch=st.integers(0, 50),
    group=st.integers(1, 9),
)
def test_each_window_at_most_once_an_epoch(
    rows: int, batch: int, seed: int, epoch: int, group: int
) -> None:
    batch = min(batch, rows)
    whole = plan(0, seed, 51, group, batch, np.arange(rows))
    updates = whole.fresh(epoch)
    seen = rows_of(updates)
    assert len(set(seen)) == len(seen) == rows // batch * batch
    assert set(seen) <= set(range(rows))
    sizes = [len(one.batches) for one in updates]
    assert [one.rows.shape for one in updates] == [(size, batch) for size in sizes]
    last = sizes.pop()
    assert set(sizes) <= {group}
    assert 1 <= last <= group


def rows_of(updates: list[Update]) -> list[int]:
    """Every window that they see, in this order."""
    return [int(row) for one in updates for row in one.rows.ravel()]


def by_batch(updates: list[Update]) -> dict[int, list[int]]:
    """The windows of each batch."""
    return {
        batch: rows.tolist()
        for one in updates
        for batch, rows in zip(one.batches, one.rows, strict=True)
    }


def test_windows_that_fill_no_batch_come_in_other_epochs() -> None:
    long = plan(epochs=40)
    seen = {row for epoch in range(40) for row in rows_of(long.fresh(epoch))}
    assert seen == set(ROWS.tolist())


def test_another_order_every_epoch_and_the_same_for_the_same_seed() -> None:
    first, again, other = (
        [tuple(rows_of(plan(seed=seed).fresh(epoch))) for epoch in range(3)] for seed in (7, 7, 8)
    )
    assert first == again
    assert len({*first, *other}) == 6


@pytest.mark.parametrize("group", [1, 3, 5, 100])
def test_ids_and_batch_numbers_are_unique_and_without_a_gap(group: int) -> None:
    whole = plan(replayed=4, group=group)
    updates: list[Update] = []
    for epoch in range(whole.epochs):
        fresh = whole.fresh(epoch)
        updates += [*fresh, *whole.replay(epoch, dict.fromkeys(by_batch(fresh), 1.0))]
    assert [one.id for one in updates] == list(range(whole.updates))
    assert list(by_batch(updates)) == list(range(whole.batches))
    assert whole.batches_per_epoch == 14
    assert whole.per_epoch == -(-10 // group) - (-4 // group)


@pytest.mark.parametrize("group", [1, 2, 4])
def test_replay_takes_the_worst_losses_however_batches_were_grouped(group: int) -> None:
    whole = plan(replayed=3, group=group)
    rows = by_batch(whole.fresh(1))
    losses = {batch: float(k % 5) + k / 100 for k, batch in enumerate(rows)}
    worst = sorted(losses, key=losses.__getitem__, reverse=True)[:3]
    again = by_batch(whole.replay(1, losses))
    assert list(again.values()) == [rows[batch] for batch in worst]
    assert again.keys().isdisjoint(rows)


def test_equal_losses_are_replayed_in_the_order_of_their_batches() -> None:
    whole = plan(replayed=3)
    first = by_batch(whole.fresh(0))
    again = by_batch(whole.replay(0, dict.fromkeys(reversed(first), 1.0)))
    assert list(again.values()) == [first[batch] for batch in range(3)]


def test_no_more_is_replayed_than_there_is() -> None:
    assert plan(replayed=1000).replayed == 10
    assert plan(replayed=0).per_epoch == 10


def test_too_few_rows_for_a_batch_are_refused_with_the_remedy() -> None:
    with pytest.raises(UsageError, match=r"jobs\.train\.batch_size.*200.*103.*at most 103"):
        plan(batch_size=200)


@settings(deadline=None)
@given(rows=st.integers(0, 40), size=st.integers(1, 15))
def test_chunks_count_each_row_once_and_are_all_of_one_size(rows: int, size: int) -> None:
    counted: list[int] = []
    for piece, weights in chunks(np.arange(rows, dtype=np.int32), size):
        assert piece.shape == weights.shape == (size,)
        assert piece.dtype == np.int32
        assert weights.dtype == np.float32
        assert set(weights.tolist()) <= {0.0, 1.0}
        assert set(piece.tolist()) <= set(range(rows))
        counted += piece[weights == 1.0].tolist()
    assert counted == list(range(rows))
