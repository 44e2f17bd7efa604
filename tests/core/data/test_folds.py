"""Folds of cross-validation: every group is held out once, by one fold, whole."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.data.split import folds_of
from tests.core.data.desk import refused, wrong

people = st.lists(st.integers(0, 30), min_size=2, max_size=80).filter(
    lambda found: len(set(found)) > 1
)


@given(people, st.integers(0, 2**31 - 1), st.data())
def test_each_group_is_held_out_once_and_whole(
    found: list[int], seed: int, data: st.DataObject
) -> None:
    groups = np.array(found, np.int32)
    count = data.draw(st.integers(2, len(set(found))))
    folds = folds_of(groups, count, seed)
    assert [fold.number for fold in folds] == list(range(count))
    assert sorted(group for fold in folds for group in fold.groups) == sorted(set(found))
    for fold in folds:
        held_out = np.isin(groups, fold.groups)
        np.testing.assert_array_equal(np.sort(fold.held_out), np.flatnonzero(held_out))
        np.testing.assert_array_equal(np.sort(fold.train), np.flatnonzero(~held_out))
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


@wrong("folds")
def test_what_cannot_be_cut_is_refused(row: dict[str, Any]) -> None:
    with refused(row["says"]):
        folds_of(np.array(row["groups"], np.int32), row["folds"], 0)
