"""Held-out people are held out whole."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.data import split_validation
from core.data.split import folds_of, held_out_whole
from tests.core.data.desk import refused, wrong

SUBJECTS = np.repeat(np.array([3, 5, 8, 13], dtype=np.int32), 5)


@given(
    subjects=st.lists(st.integers(0, 9), min_size=1, max_size=60),
    share=st.floats(0, 1, exclude_max=True),
    seed=st.integers(0, 2**63),
)
def test_a_count_holds_out_so_many_people_and_every_row_once(
    subjects: list[int], share: float, seed: int
) -> None:
    array = np.array(subjects, dtype=np.int32)
    count = int(share * len(set(subjects)))
    training, validation = split_validation(array, count, seed)
    assert sorted([*training, *validation]) == list(range(len(subjects)))
    assert len(set(array[validation])) == count
    assert not set(array[training]) & set(array[validation])
    np.testing.assert_array_equal(split_validation(array, count, seed)[1], validation)


def test_the_seed_draws_the_people_and_a_list_names_them() -> None:
    drawn = {tuple(SUBJECTS[split_validation(SUBJECTS, 1, seed)[1]]) for seed in range(40)}
    assert len(drawn) == 4
    training, validation = split_validation(SUBJECTS, [13, 5], 0)
    assert set(SUBJECTS[validation]) == {5, 13}
    assert set(SUBJECTS[training]) == {3, 8}


CLASSES = np.repeat(np.array([0, 1], np.int32), 10)


@wrong("split")
def test_impossible_requests_are_one_error(row: dict[str, Any]) -> None:
    people = row["people"]
    subjects = np.repeat(np.array(people, np.int32), 20 // len(people))
    with refused(row["says"]):
        split_validation(subjects, row["held out"], 0, CLASSES)


def test_what_is_almost_impossible_is_possible() -> None:
    assert len(split_validation(SUBJECTS * 0, 0, 0)[0]) == 20
    assert len(split_validation(SUBJECTS, [3, 13], 0, CLASSES)[0]) == 10


def test_a_fold_that_leaves_one_class_to_train_on_is_refused() -> None:
    with refused("jobs.cv.folds: fold 1: expected training rows of at least 2 classes"):
        folds_of(CLASSES + 1, 2, 0, CLASSES)


def test_a_class_of_held_out_people_alone_is_said() -> None:
    classes = np.array([0, 1] * 5 + [0, 2] * 5, np.int32)
    labels = ("sit", "walk", "run")
    training, _ = split_validation(SUBJECTS, [8, 13], 0, classes)
    assert "all rows of run are held out" in held_out_whole(classes, training, labels)
    assert held_out_whole(classes, np.arange(20), labels) == ""


@pytest.mark.parametrize("held_out", [0, []])
@pytest.mark.parametrize("subjects", [SUBJECTS, np.full(20, -1, np.int32)])
def test_nothing_is_held_out_when_nothing_is_asked(
    subjects: np.ndarray, held_out: int | list[int]
) -> None:
    training, validation = split_validation(subjects, held_out, 0)
    assert (training.tolist(), validation.tolist()) == (list(range(20)), [])


def test_without_people_a_fifth_of_each_class_is_held_out() -> None:
    classes = np.repeat(np.array([0, 1, 2], dtype=np.int32), [10, 50, 100])
    training, validation = split_validation(np.full(160, -1, dtype=np.int32), 4, 0, classes)
    assert np.bincount(classes[validation]).tolist() == [2, 10, 20]
    assert sorted([*training, *validation]) == list(range(160))
