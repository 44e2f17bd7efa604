"""Whose windows a model has seen: what a training must know before it learns from that model."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter

from core.data import Dataset
from core.data.recordings import NO_SUBJECT

MOST_SHOWN = 6


@dataclass(frozen=True)
class TrainedOn:
    """The training rows of a model and their `groups`, such as people.

    The groups are empty where the source does not say all of them. `rows_sha256` is over the
    numbers of the rows in the prepared data.
    """

    groups: tuple[int, ...]
    windows: Annotated[int, Field(ge=0)]
    rows_sha256: str

    @classmethod
    def of(cls, dataset: Dataset, rows: NDArray[np.integer]) -> "TrainedOn":
        """Return the facts of a model that these rows of the data set train."""
        ordered = np.sort(rows).astype("<i8")
        groups = tuple(int(group) for group in np.unique(dataset.subjects()[ordered]))
        return cls(
            () if NO_SUBJECT in groups else groups,
            len(ordered),
            hashlib.sha256(ordered.tobytes()).hexdigest(),
        )

    @classmethod
    def read(cls, content: Any) -> "TrainedOn":
        """What JSON has of one. Raises ValueError for anything else."""
        return _TRAINED_ON.validate_python(content)

    def beyond(self, other: "TrainedOn") -> str:
        """Return words for what this one has seen and `other`, of the same data, has not.

        They are empty if there is nothing. Without groups the rows must be the same.
        """
        if self.rows_sha256 == other.rows_sha256:
            return ""
        if not self.groups or not other.groups:
            return "windows"
        return shown(sorted(set(self.groups) - set(other.groups)))


_TRAINED_ON = TypeAdapter(TrainedOn)


def shown(groups: Sequence[int]) -> str:
    """`groups 3, 7 and 2 more`; empty without groups."""
    names = ", ".join(map(str, groups[:MOST_SHOWN]))
    if len(groups) > MOST_SHOWN:
        more = f" and {len(groups) - MOST_SHOWN} more"
    else:
        more = ""
    if groups:
        return f"group{'s' * (len(groups) > 1)} {names}{more}"
    return ""
