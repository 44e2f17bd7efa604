"""What is known of recordings by their kind: unit, sampling rate, filters, the licence in its own words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cluster.data.filters import CHANNELS, SAMPLE_RATE_HZ
from cluster.data.show.portrait import channel_names

IN_UCI_S_LIST = "The UCI repository lists the set under CC BY 4.0."
"""By what public projects, independent of each other, say of its pages; no machine of this project could ask it. The
sets of July 2015 and of November 2012 say otherwise themselves, so both are quoted."""

LICENCE_OF_HAPT = (
    f"{IN_UCI_S_LIST} "
    'README.txt of the set: "Use of this dataset in publications must be acknowledged by referencing the following '
    "publications - Jorge-L. Reyes-Ortiz, Luca Oneto, Albert Samà, Xavier Parra, Davide Anguita. Transition-Aware "
    "Human Activity Recognition Using Smartphones. Neurocomputing. Springer 2015. This dataset is distributed AS-IS "
    "and no responsibility implied or explicit can be addressed to the authors or their institutions for its use or "
    'misuse. Any commercial use is prohibited."'
)
"""Of the HAPT set of July 2015."""

LICENCE_OF_UCI_HAR = (
    f"{IN_UCI_S_LIST} "
    'README.txt of the set: "Use of this dataset in publications must be acknowledged by referencing the following '
    "publication [1]. [1] Davide Anguita, Alessandro Ghio, Luca Oneto, Xavier Parra and Jorge L. Reyes-Ortiz. Human "
    "Activity Recognition on Smartphones using a Multiclass Hardware-Friendly Support Vector Machine. International "
    "Workshop of Ambient Assisted Living (IWAAL 2012). Vitoria-Gasteiz, Spain. Dec 2012. This dataset is distributed "
    "AS-IS and no responsibility implied or explicit can be addressed to the authors or their institutions for its use "
    'or misuse. Any commercial use is prohibited."'
)
"""Of the classic set of November 2012, as public copies of its README.txt have it."""

LICENCE_OF_HHAR = f"{IN_UCI_S_LIST} Its own readme.txt names none."
"""Of the HHAR set of 2015."""


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
    "uci-har": KnownSet(NINE_CHANNELS, SAMPLE_RATE_HZ, "two-way", LICENCE_OF_UCI_HAR),
    "hhar": KnownSet(licence=LICENCE_OF_HHAR),
    "synthetic": KnownSet(NINE_CHANNELS, SAMPLE_RATE_HZ, "two-way"),
}
"""By kind of recordings."""


def known(kind: str, channels: int) -> KnownSet:
    """The facts of a kind, if its windows have the channels that the facts are of."""
    found = KNOWN.get(kind, KnownSet())
    return found if channels == len(CHANNELS) else KnownSet(licence=found.licence)


def names(width: int) -> tuple[str, ...]:
    """Of the channels."""
    return channel_names(width)
