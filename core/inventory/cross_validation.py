"""The job `cv`: how the training people are cut into folds, and how often each fold is trained."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from core.inventory.fields import Section, Seed, are_distinct, invalid

EACH_GROUP = "groups"
MOST_FOLDS = 10_000
MOST_SEEDS = 1000
LARGEST_SEED = 2**31 - 1


def _folds(value: object) -> object:
    """A number or `groups`; checked here so that a wrong value is one problem, not one a branch."""
    if value == EACH_GROUP or (type(value) is int and 2 <= value <= MOST_FOLDS):
        return value
    raise invalid(
        f"expected a whole number from 2 to {MOST_FOLDS}, or `{EACH_GROUP}` for one fold a group",
        "write e.g. 5",
    )


def _seeds(value: object) -> object:
    """Return the seeds: so many from 0 on, or those listed."""
    if type(value) is int and 1 <= value <= MOST_SEEDS:
        return tuple(range(value))
    if not are_distinct(value, 0, LARGEST_SEED) or len(value) > MOST_SEEDS:
        raise invalid(
            "expected how many seeds, or a list of whole numbers from 0 to"
            f" {LARGEST_SEED}, each once",
            "write e.g. 5 or [0, 3, 7]",
        )
    return value


Folds: TypeAlias = Annotated[int | Literal["groups"], BeforeValidator(_folds)]
Seeds: TypeAlias = Annotated[tuple[int, ...], BeforeValidator(_seeds)]


class CrossValidationJob(Section):
    """Cross-validation of what `train` describes, over the training people alone.

    Nothing of the test set is read.
    """

    folds: Folds = Field(
        5,
        description=(
            "how many, of whole groups such as people or devices; `groups` leaves out one group at"
            " a time"
        ),
    )
    seeds: Seeds = Field(
        (0,), description="of the trainings: how many, from 0 on, or a list; each trains every fold"
    )
    split_seed: Seed = Field(
        0, description="of the draw of groups into folds, the same for all seeds"
    )
