"""The sections of `jobs.train` with keys of their own."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    Field,
)

from core.inventory.fields import Choice, Fraction, Section, are_distinct, invalid
from core.inventory.slots import MOST_SLOTS

Auto = Literal["auto"]


MAXIMUM_SUBJECTS = 10_000


class Constant(Choice):
    """One learning rate for every update."""

    name: Literal["constant"] = Field("constant", description="which schedule this is")


class OneCycle(Choice):
    """Cosine up to the learning rate, then down to almost nothing (arXiv 1708.07120).

    The divisors are those of PyTorch's OneCycleLR.
    """

    name: Literal["one_cycle"] = Field("one_cycle", description="which schedule this is")
    warmup_fraction: Fraction = Field(
        0.3, description="share of all updates in which the rate rises"
    )
    initial_divisor: float = Field(
        25.0, ge=1.0, description="the first rate is the highest one divided by this"
    )
    final_divisor: float = Field(
        10_000.0, ge=1.0, description="the last rate is the first one divided by this"
    )


ScheduleConfig = Annotated[OneCycle | Constant, Field(discriminator="name")]
"""One of the schedules; the key `name` says which."""


class CheckpointSettings(Section):
    """What a run keeps to resume from."""

    every_seconds: float = Field(
        60.0, ge=0.0, le=86_400.0, description="time between two checkpoints, about"
    )
    every_updates: int | None = Field(
        None,
        ge=1,
        le=1_000_000_000,
        description="updates between two checkpoints; the sooner of the two counts",
    )
    keep: int = Field(3, ge=1, le=1000, description="how many of the latest stay")


LARGEST_WEIGHT = 1e6


def _class_weights(value: object) -> object:
    """Check `none`, `balanced`, or a weight by label.

    A wrong value is one problem here.
    """
    if value in (None, "none"):
        return None
    if value == "balanced":
        return value
    if not isinstance(value, Mapping) or not value:
        raise invalid(
            "expected none, balanced, or a mapping of labels to weights",
            "write e.g. {WALKING: 1.0, SITTING: 2.5}",
        )
    for label, weight in value.items():
        if (
            isinstance(weight, bool)
            or not isinstance(weight, int | float)
            or not 0 < weight <= LARGEST_WEIGHT
        ):
            raise invalid(
                f"expected a number above 0, at most {LARGEST_WEIGHT:,.0f}, for the label"
                f" {label!r}",
                "write e.g. 2.5; labels left out have 1",
            )
    return {label: float(weight) for label, weight in value.items()}


ClassWeights = Annotated[
    Literal["balanced"] | dict[str, float] | None, BeforeValidator(_class_weights)
]


class EarlyStopping(Section):
    """Ends a training whose validation has not got better for a number of epochs."""

    patience: int = Field(
        ge=1, le=100_000, description="epochs without a better one, after which the training ends"
    )
    min_delta: float = Field(
        0.0,
        ge=0.0,
        description=(
            "an epoch is better, and selected, if its accuracy is higher by more than this; where"
            " it is equal or there is none, its loss lower"
        ),
    )


class AugmentSettings(Section):
    """Changes each training window differently each time it is seen.

    What is validated and tested stays as it is.
    """

    rotation_degrees: float = Field(
        0.0,
        ge=0.0,
        le=180.0,
        description="each window's sensors are turned about a random axis, by at most this",
    )
    time_warp: Fraction = Field(
        0.0, description="a window's time runs faster and slower by at most this share"
    )


class AveragingSettings(Section):
    """Stochastic weight averaging, https://arxiv.org/abs/1803.05407.

    The model is a mean over the last epochs.
    """

    start: Fraction = Field(
        0.75, description="share of the epochs after which the parameters of each are averaged"
    )


def _subjects(value: object) -> object:
    """Check a count or a list of ids.

    A wrong value is one problem here, not one a branch.
    """
    if not are_distinct((value,) if type(value) is int else value, 0, MAXIMUM_SUBJECTS):
        raise invalid(
            "expected how many subjects, or a list of ids, each once, from 0 to"
            f" {MAXIMUM_SUBJECTS}",
            "write e.g. 3 or [1, 7, 21]",
        )
    return value


Subjects = Annotated[int | tuple[int, ...], BeforeValidator(_subjects)]


def _pieces(value: object) -> object:
    """`auto` or a count; checked here for the same reason."""
    if value == "auto" or (type(value) is int and 1 <= value <= MOST_SLOTS):
        return value
    raise invalid(f"expected `auto` or a whole number from 1 to {MOST_SLOTS}", "write auto")


Pieces = Annotated[int | Auto, BeforeValidator(_pieces)]
