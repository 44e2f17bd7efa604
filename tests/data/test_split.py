"""Held-out people are held out whole."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.data import split_validation
from cluster.errors import DataError

SUBJECTS = np.repeat(np.array([3, 5, 8, 13], dtype=np.int32), 5)


@given(
    subjects=st.lists(st.integers(0, 9), min_size=1, max_size=60),
    share=st.floats(0, 1, exclude_max=True),
    seed=st.integers(0, 2**63),
)
def test_a_count_holds_out_so_many_people_and_every_row_once(subjects: list[int], share: float, seed: int) -> None:
    array = np.array(subjects, dtype=np.int32)
    count = int(share * len(set(subjects)))
    training, validation = split_validation(array, count, seed)
    assert sorted([*training, *validation]) == list(range(len(subjects)))
    assert len(set(array[validation].tolist())) == count
    assert not set(array[training].tolist()) & set(array[validation].tolist())
    again = split_validation(array, count, seed)
    np.testing.assert_array_equal(again[1], validation)


def test_the_seed_draws_the_people_and_a_list_names_them() -> None:
    drawn = {tuple(SUBJECTS[split_validation(SUBJECTS, 1, seed)[1]].tolist()) for seed in range(40)}
    assert len(drawn) == 4
    training, validation = split_validation(SUBJECTS, [13, 5], 0)
    assert set(SUBJECTS[validation].tolist()) == {5, 13}
    assert set(SUBJECTS[training].tolist()) == {3, 8}


@pytest.mark.parametrize(
    ("held_out", "expected"),
    [
        (4, "expected 0 to 3 of the training subjects, got 4"),
        (-1, "expected 0 to 3 of the training subjects, got -1"),
        ([5, 6], "6 is not a training subject; choose among 3, 5, 8, 13"),
        ([3, 5, 8, 13], "would leave nothing to train on"),
    ],
)
def test_impossible_requests_are_one_error(held_out: int | list[int], expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        split_validation(SUBJECTS, held_out, 0)


@pytest.mark.parametrize("held_out", [0, []])
def test_nothing_is_held_out_when_nothing_is_asked(held_out: int | list[int]) -> None:
    for subjects in (SUBJECTS, np.full(6, -1, dtype=np.int32)):
        training, validation = split_validation(subjects, held_out, 0)
        assert len(validation) == 0
        assert training.tolist() == list(range(len(subjects)))


def test_without_people_a_fifth_of_each_class_is_held_out() -> None:
    classes = np.repeat(np.array([0, 1, 2], dtype=np.int32), [10, 50, 100])
    training, validation = split_validation(np.full(160, -1, dtype=np.int32), 4, 0, classes)
    assert np.bincount(classes[validation]).tolist() == [2, 10, 20]
    assert sorted([*training, *validation]) == list(range(160))
    with pytest.raises(DataError, match="do not say who was recorded"):
        split_validation(np.full(160, -1, dtype=np.int32), [4], 0, classes)
