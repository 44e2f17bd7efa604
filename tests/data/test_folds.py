"""Folds of cross-validation: every group is held out once, by one fold, whole."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.data.folds import folds_of
from cluster.errors import DataError

people = st.lists(st.integers(0, 30), min_size=2, max_size=80).filter(lambda found: len(set(found)) > 1)


@given(people, st.integers(0, 2**31 - 1), st.data())
def test_each_group_is_held_out_once_and_whole(found: list[int], seed: int, data: st.DataObject) -> None:
    groups = np.array(found, np.int32)
    count = data.draw(st.integers(2, len(set(found))))
    folds = folds_of(groups, count, seed)
    assert [fold.number for fold in folds] == list(range(count))
    assert sorted(group for fold in folds for group in fold.groups) == sorted(set(found))
    for fold in folds:
        assert set(groups[fold.held_out]) == set(fold.groups)
        assert not set(groups[fold.train]) & set(fold.groups)
        assert sorted([*fold.train, *fold.held_out]) == list(range(len(groups)))
    sizes = [len(fold.groups) for fold in folds]
    assert max(sizes) - min(sizes) <= 1


def test_the_draw_is_of_the_seed_alone() -> None:
    groups = np.repeat(np.arange(21, dtype=np.int32), 5)
    drawn = [[fold.groups for fold in folds_of(groups, 5, seed)] for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_one_group_at_a_time_goes_in_their_order() -> None:
    folds = folds_of(np.array([7, 3, 3, 9], np.int32), "groups", 0)
    assert [fold.groups for fold in folds] == [(3,), (7,), (9,)]
    assert [fold.held_out.tolist() for fold in folds] == [[1, 2], [0], [3]]


def test_without_groups_each_class_is_dealt_out() -> None:
    classes = np.array([0] * 10 + [1] * 5, np.int32)
    folds = folds_of(np.full(15, -1, np.int32), 5, 0, classes)
    for fold in folds:
        assert np.bincount(classes[fold.held_out], minlength=2).tolist() == [2, 1]
        assert fold.groups == ()
    assert sorted(row for fold in folds for row in fold.held_out) == list(range(15))


@pytest.mark.parametrize(
    ("groups", "folds", "words"),
    [
        ([1, 2, 2], 3, "expected 2 to 2, one for each group"),
        ([1, 1, 1], "groups", "expected 2 to 1"),
        ([-1, -1], "groups", "does not say whose each row is"),
        ([-1, -1], 3, "expected at most 2, one for each training row, got 3"),
    ],
)
def test_what_cannot_be_cut_is_refused(groups: list[int], folds: int | str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        folds_of(np.array(groups, np.int32), folds, 0)  # type: ignore[arg-type]
