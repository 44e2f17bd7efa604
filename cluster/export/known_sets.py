"""What is known of recordings by their kind: unit, sampling rate, filters, the licence in its own words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cluster.data.filters import CHANNELS, SAMPLE_RATE_HZ
from cluster.data.show.portrait import channel_names

LICENCE_OF_HAPT = (
    'README.txt of the set: "Use of this dataset in publications must be acknowledged by referencing the following '
    "publications - Jorge-L. Reyes-Ortiz, Luca Oneto, Albert Samà, Xavier Parra, Davide Anguita. Transition-Aware "
    "Human Activity Recognition Using Smartphones. Neurocomputing. Springer 2015. This dataset is distributed AS-IS "
    "and no responsibility implied or explicit can be addressed to the authors or their institutions for its use or "
    'misuse. Any commercial use is prohibited."'
)
"""Of the HAPT set of July 2015."""


@dataclass(frozen=True)
class KnownSet:
    """Facts of one kind of recordings; None and empty where they are not known."""

    unit: str = ""
    sampling_hz: float | None = None
    filters: Literal["two-way", "causal"] | None = None
    licence: str | None = None


NINE_CHANNELS = "g, rad/s, g: body acceleration, angular velocity, total acceleration"
KNOWN: Mapping[str, KnownSet] = {
    "hapt": KnownSet(NINE_CHANNELS, SAMPLE_RATE_HZ, "two-way", LICENCE_OF_HAPT),
    "uci-har": KnownSet(NINE_CHANNELS, SAMPLE_RATE_HZ, "two-way"),
    "synthetic": KnownSet(NINE_CHANNELS, SAMPLE_RATE_HZ, "two-way"),
}
"""By kind of recordings. The classic set has other words in its README, which none of its files here says."""


def known(kind: str, channels: int) -> KnownSet:
    """The facts of a kind, if its windows have the channels that the facts are of."""
    found = KNOWN.get(kind, KnownSet())
    return found if channels == len(CHANNELS) else KnownSet(licence=found.licence)


def names(width: int) -> tuple[str, ...]:
    """Of the channels."""
    return channel_names(width)
