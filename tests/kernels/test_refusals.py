"""Programs and ranges that do not fit are refused with a reason, whatever they hold."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.library import UnfitProgramError, loaded
from tests.kernels.calls import CASES, WORDS, damaged
from tests.kernels.networks import SLOTS, Case, bytes_of
from tests.tables import table


def test_damaged_programs_are_refused_or_computed() -> None:
    expected = [bytes_of(case.sums()) for case in CASES]
    refused = [call.answer.startswith(b"refused: ") for call in damaged(100)]
    assert 500 < sum(refused) < len(refused)
    # Whatever they were, the library is as it was.
    assert [bytes_of(case.sums()) for case in CASES] == expected


@given(st.lists(st.sampled_from(WORDS), min_size=1))
def test_so_is_one_of_any_words(words: list[int]) -> None:
    with pytest.raises(UnfitProgramError):
        Case("kth", words=words).sums()


RECIPES = table("kernels/unfit", "recipes")


@pytest.mark.parametrize("reason", RECIPES)
def test_a_recipe_that_does_not_fit(reason: str) -> None:
    case = Case("kth")
    recipe = dataclasses.replace(case.recipe, **RECIPES[reason])
    with pytest.raises(UnfitProgramError, match=reason):
        case.sums(recipe=recipe)


@pytest.mark.parametrize("slots", [(0, 0), (-1, 2), (SLOTS - 1, 2), (0, SLOTS + 1)])
def test_slots_that_the_batch_does_not_have(slots: tuple[int, int]) -> None:
    case = Case("kth")
    with pytest.raises(UnfitProgramError, match="slots: no such range"):
        case.sums(slots, batch=case.batch)


def test_half_a_group_of_batch_norm() -> None:
    case = Case("highway")
    with pytest.raises(UnfitProgramError, match="slots: a group is cut in two"):
        case.sums((0, 2))


def test_a_record_that_is_cut_off() -> None:
    case = Case("kth")
    record = case.record((0, SLOTS), False, case.batch, case.recipe)
    with pytest.raises(UnfitProgramError, match="the record is cut off"):
        loaded().called(record[:-1], 0, threads=1, kind="")
