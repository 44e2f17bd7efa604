"""Which windows each update sees."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import UsageError
from cluster.jobs.batches import Plan, chunks

ROWS = np.arange(100, 203, dtype=np.int32)


def plan(replayed: int = 0, seed: int = 7, epochs: int = 3) -> Plan:
    return Plan(ROWS, batch_size=10, epochs=epochs, replayed=replayed, seed=seed)


@given(rows=st.integers(1, 300), batch=st.integers(1, 300), seed=st.integers(0, 2**31 - 1), epoch=st.integers(0, 50))
def test_each_window_at_most_once_an_epoch(rows: int, batch: int, seed: int, epoch: int) -> None:
    batch = min(batch, rows)
    batches = list(Plan(np.arange(rows, dtype=np.int32), batch, 51, 0, seed).fresh(epoch))
    seen = np.concatenate([one.rows for one in batches])
    assert len(np.unique(seen)) == len(seen) == rows // batch * batch
    assert all(len(one.rows) == batch for one in batches)
    assert seen.min() >= 0
    assert seen.max() < rows


def test_windows_that_fill_no_batch_come_in_other_epochs() -> None:
    long = plan(epochs=40)
    seen = Counter(int(row) for epoch in range(40) for one in long.fresh(epoch) for row in one.rows)
    assert set(seen) == set(ROWS.tolist())


def test_another_order_every_epoch_and_the_same_for_the_same_seed() -> None:
    def orders(seed: int) -> list[list[int]]:
        return [np.concatenate([one.rows for one in plan(seed=seed).fresh(epoch)]).tolist() for epoch in range(3)]

    first = orders(7)
    assert first == orders(7)
    assert len({tuple(order) for order in first + orders(8)}) == 6


def test_ids_are_unique_and_without_a_gap() -> None:
    whole, ids = plan(replayed=4), []
    for epoch in range(whole.epochs):
        fresh = {one.id: one for one in whole.fresh(epoch)}
        ids += list(fresh)
        ids += [one.id for one in whole.replay(epoch, dict.fromkeys(fresh, 1.0), fresh)]
    assert ids == list(range(whole.updates))
    assert whole.per_epoch == 14


def test_replay_takes_the_worst_losses() -> None:
    whole = plan(replayed=3)
    fresh = {one.id: one for one in whole.fresh(1)}
    losses = {identifier: float(k % 5) + k / 100 for k, identifier in enumerate(fresh)}
    worst = sorted(losses, key=losses.__getitem__, reverse=True)[:3]
    replayed = list(whole.replay(1, losses, fresh))
    assert [one.rows.tolist() for one in replayed] == [fresh[identifier].rows.tolist() for identifier in worst]
    assert {one.id for one in replayed}.isdisjoint(fresh)


def test_no_more_is_replayed_than_there_is() -> None:
    assert plan(replayed=1000).replayed == 10
    assert plan(replayed=0).per_epoch == 10


def test_too_few_rows_for_a_batch_are_refused_with_the_remedy() -> None:
    with pytest.raises(UsageError, match=r"jobs\.train\.batch_size.*200.*103.*at most 103"):
        Plan(ROWS, batch_size=200, epochs=1, replayed=0, seed=0)


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
