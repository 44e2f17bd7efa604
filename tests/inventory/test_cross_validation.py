"""`jobs.cv`: how many folds and which seeds."""

from typing import Any

import pytest
from pydantic import ValidationError

from cluster.inventory.cross_validation import CrossValidationJob


@pytest.mark.parametrize(("seeds", "found"), [(1, (0,)), (3, (0, 1, 2)), ((4, 2), (4, 2))])
def test_seeds_are_how_many_or_which(seeds: Any, found: tuple[int, ...]) -> None:
    assert CrossValidationJob(seeds=seeds).seeds == found


def test_each_group_may_be_a_fold() -> None:
    assert CrossValidationJob(folds="groups").folds == "groups"


@pytest.mark.parametrize(
    "wrong",
    [
        {"folds": 1}, {"folds": 2.0}, {"folds": True}, {"folds": "people"}, {"folds": None},
        {"seeds": 0}, {"seeds": ()}, {"seeds": (1, 1)}, {"seeds": (-1,)}, {"seeds": (True,)}, {"seeds": "3"},
        {"seeds": (2**31,)},
    ],
)  # fmt: skip
def test_anything_else_is_one_problem_with_a_remedy(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        CrossValidationJob(**wrong)
    (problem,) = caught.value.errors()
    assert problem["loc"] == tuple(wrong)
    assert problem["ctx"]["remedy"].startswith("write e.g.")
