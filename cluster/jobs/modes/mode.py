"""What every mode is to the trainer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cluster.consistency import Grant, Policy
from cluster.engine.messages import Item, Outcome
from cluster.engine.runtime import Traced
from cluster.jobs.batches import Update
from ps_node.shard import PlacedVector


@dataclass(frozen=True)
class Stretch:
    """What the items of one fit have in common.

    `first_id` is the id of its first update, `rate_of` the learning rate of a batch by its number, `standardization`
    float32 (2, channels), `live` the number of workers in the cluster now.
    """

    first_id: int
    rate_of: Callable[[int], float]
    standardization: NDArray[np.float32]
    live: Callable[[], int]


@dataclass(frozen=True)
class Step:
    """What one update came to: the mean loss of each of its batches by number, right answers, and what it took.

    `norm` is that of the gradient before clipping, of the largest where there are several; `seconds` of the parts
    pull, compute and push, on the worker.
    """

    losses: Mapping[int, float]
    hits: float
    norm: float
    staleness: float


@dataclass(frozen=True)
class Reply:
    """What one item came to on its worker: seconds of pull, compute and push, windows, and the update if it is done."""

    seconds: tuple[float, float, float]
    windows: int
    staleness: float
    step: Step | None


class Memories:
    """Which workers remember something of a fit, and how many lost it with their process."""

    def __init__(self) -> None:
        self.lost, self._known = 0, set[tuple[int, int]]()

    def heard(self, task: int, fit: int, *, forgot: bool) -> None:
        """A reply of `task` in the fit that begins with update `fit`: did the worker begin with nothing?"""
        self.lost += forgot and (task, fit) in self._known
        self._known.add((task, fit))


class Mode(Protocol):
    """A mode, its shards and its traced functions."""

    policy: Policy

    @property
    def functions(self) -> Mapping[str, Traced]:
        """Everything the workers may be asked to do, traced."""
        ...

    @property
    def shards(self) -> PlacedVector[Any]:
        """The parameters."""
        ...

    def item(self, grant: Grant, update: Update, stretch: Stretch) -> Item:
        """What the granted part of `update` is to the dispatcher."""
        ...

    def read(self, grant: Grant, update: Update, outcome: Outcome, stretch: Stretch) -> Reply:
        """What the first reply to a grant says; tells the policy."""
        ...

    @property
    def memories_lost(self) -> int:
        """How often a worker lost what it kept between its pushes: a codec's residual, an inner optimizer's slots."""
        ...

    def settle(self) -> Item | None:
        """What has to be run before the parameters may be read, after a stretch; None if nothing."""
        ...
