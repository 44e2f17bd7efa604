"""The training modes: what every mode is to the trainer, and how a job's mode is made.

A mode says what is traced for the workers, what is dispatched, and how replies are read. Traced
functions take tensors by type and shape, where None is a size that each call may set.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.jobs.fit import Update
from core.consistency import Grant, Policy, Speeds
from core.engine.codecs import Codec
from core.engine.codecs.fp32 import Fp32
from core.engine.drive import GrantSource
from core.engine.runtime import Traced
from core.engine.workers import Item, Outcome
from core.ground.lazy import tf
from core.inventory.extensions import CODECS, OPTIMIZERS
from core.inventory.fields import Choice
from core.inventory.slots import LIBRARY
from core.inventory.training import TrainJob
from core.models.native import OWN_THREADS
from core.models.network import Network
from core.parameters import Vector
from core.status.parts import PARTS
from ps_node.arithmetic import Arithmetic, arithmetic_of
from ps_node.nodes import StepRecipe
from ps_node.optimizers import Optimizer
from ps_node.shard import PlacedVector, VectorState, Wire
from worker_node.gradient import GradientOfBatch
from worker_node.recordings import LossWeights, WorkerWindows, standardized_channels


@dataclass(frozen=True)
class Stretch:
    """What all items of one fit share.

    `first_id` is the id of its first update, `rate_of` the learning rate of a batch by its number,
    `standardization` float32 (2, channels), `live` the number of workers in the cluster now.
    """

    first_id: int
    rate_of: Callable[[int], float]
    standardization: NDArray[np.float32]
    live: Callable[[], int]


@dataclass(frozen=True)
class Step:
    """The result of one update: the mean loss of each of its batches, right answers and norm.

    `losses` is by the batch's number. `norm` is that of the gradient before clipping, the largest
    where there are several, and of the update that was `behind` before this one.
    """

    losses: Mapping[int, float]
    hits: float
    norm: float
    behind: int = 0


@dataclass(frozen=True)
class ItemResult:
    """An item's result for one of its updates: seconds on its worker, windows, the update's result.

    The seconds are of pull, compute and push. There is a `step` if the update is complete with it.
    """

    seconds: tuple[float, float, float]
    windows: int
    staleness: float
    step: Step | None


class Memories:
    """Which workers remember something of a fit, and how many lost it with their process."""

    def __init__(self) -> None:
        self.lost = 0
        self._fit = -1
        self._heard = set[int]()
        self._holders = set[int]()

    def record_reply(self, task: int, fit: int, *, forgot: bool) -> None:
        """Record a reply of `task` in the fit from update `fit` on, and a memory that was empty."""
        if fit != self._fit:
            self._fit = fit
            self._heard.clear()
            self._holders.clear()
        self.lost += forgot and task in self._heard
        self._heard.add(task)
        if forgot:  # only a worker that keeps something reports an empty memory, at its first reply
            self._holders.add(task)

    @property
    def holders(self) -> int:
        """Number of workers that remember something of the present fit."""
        return len(self._holders)


class Mode(ABC):
    """A mode, its shards and its traced functions."""

    shards: PlacedVector[Any]
    """The parameters."""

    def __init__(self, setup: "Setup") -> None:
        self._job = setup.job
        self._owner = setup.owner
        self.weights = setup.weights
        self.policy = setup.policy
        self.memories = Memories()
        """State of workers between pushes: a codec's residual, an inner optimizer's slots."""

    def begin_again(self, vector: Vector, seed: int) -> None:
        """Train from `vector` with fresh optimizer slots; ids of updates continue. See `of_fit`."""
        self.shards.reset(vector)
        self.of_fit(seed)

    def of_fit(self, seed: int) -> None:
        """Drop and augment by this seed from now on."""
        self._job = self._job.model_copy(update={"seed": seed})

    @abstractmethod
    def item(self, grant: Grant, updates: Sequence[Update], stretch: Stretch) -> Item:
        """The granted part of the grant's `updates` as an item for the dispatcher."""

    @abstractmethod
    def read(
        self, grant: Grant, updates: Sequence[Update], outcome: Outcome, stretch: Stretch
    ) -> list[ItemResult]:
        """The figures in the first reply to a grant, for each of its updates.

        It also records the reply with the policy.
        """

    def settle(self) -> Item | None:
        """Return the item that must run after a stretch before parameters are read, or None."""
        return None

    def _item(self, function: Traced, number: int, *arguments: Any) -> Item:
        return Item(number, function, arguments, self._job.facts.repeatable)

    def _owner_now(self) -> NDArray[np.int64]:
        """int64 (2,): who owns what a worker remembers (`worker_node.sender.WorkerMemory`)."""
        return np.array([self._owner, self.shards.generation], np.int64)

    @staticmethod
    def _workers_now(stretch: Stretch) -> np.float32:
        """Return how many workers are in the cluster, at least 1: some may be off."""
        return np.float32(max(1, stretch.live()))

    def _dropout_seed(self, batch: int) -> NDArray[np.int32]:
        """Return int32 (2,): a batch's seed of dropout, by the job's seed and its number."""
        draws = (batch * self._job.pieces) & 0x7FFFFFFF
        return np.array([self._job.seed & 0x7FFFFFFF, draws], np.int32)


CLOCK_ERROR_SECONDS = 0.01
"""Excess of a call's parts over the call, at most: clocks run at slightly different rates."""


class WorkSource(GrantSource):
    """A source over one stretch of updates. The policy grants what an idle worker may begin."""

    def __init__(
        self,
        mode: Mode,
        updates: Sequence[Update],
        stretch: Stretch,
        live: Callable[[], frozenset[int]],
    ) -> None:
        super().__init__(mode.policy, self._item_of, live, time.monotonic)
        self._mode = mode
        self._stretch = stretch
        self._updates = {update.id: update for update in updates}
        mode.policy.begin(range(updates[0].id, updates[-1].id + 1))

    def _updates_of(self, grant: Grant) -> list[Update]:
        return [self._updates[number] for number in grant.numbers]

    def _item_of(self, grant: Grant) -> Item:
        return self._mode.item(grant, self._updates_of(grant), self._stretch)

    def read(self, outcome: Outcome) -> list[tuple[Update, ItemResult]]:
        """Return what an outcome says of each of its updates."""
        grant = self.granted(outcome)
        updates = self._updates_of(grant)
        results = self._mode.read(grant, updates, outcome, self._stretch)
        return list(zip(updates, results, strict=False))


def parts_of(seconds: tuple[float, float, float], whole: float) -> dict[str, float]:
    """Return seconds of pull, compute, push and wait of a call that took `whole` seconds.

    The mapping is empty where they cannot be true.

    A worker reads the first three off its clock of the day, which time synchronization sets, on a
    Pi by years.
    """
    measured = (
        all(0.0 <= part <= whole for part in seconds)
        and sum(seconds) <= whole + CLOCK_ERROR_SECONDS
    )
    if not measured:
        return {}
    return {**dict(zip(PARTS[:3], seconds, strict=True)), "wait": max(0.0, whole - sum(seconds))}


def parts_of_each(
    seconds: Sequence[tuple[float, float, float]], whole: float
) -> list[dict[str, float]]:
    """Return what `parts_of` does for each update of a call that took `whole` seconds.

    They share its wait.
    """
    pull, compute, push = (sum(of_update[place] for of_update in seconds) for place in range(3))
    total = parts_of((pull, compute, push), whole)
    if not total or any(min(of_update) < 0.0 for of_update in seconds):
        return [{} for _ in seconds]
    wait = total["wait"] / max(1, len(seconds))
    return [
        {**dict(zip(PARTS[:3], own_seconds, strict=True)), "wait": wait} for own_seconds in seconds
    ]


def time_after(*tensors: Any) -> Any:
    """The time, in a traced function, once these tensors are there."""
    with tf.control_dependencies(tensors):
        return tf.timestamp()


def _own_number() -> int:
    return int(np.random.SeedSequence().generate_state(1, np.uint64)[0] >> np.uint64(2))


@dataclass(frozen=True)
class Setup:
    """Everything a mode is made of. `places`: the devices that hold the parameters, by task."""

    job: TrainJob
    network: Network
    windows: WorkerWindows
    state: VectorState
    places: Mapping[int, str]
    speeds: Speeds
    owner: int = field(default_factory=_own_number)
    """A number of this run: a worker ignores what it remembers of another run."""
    weights: LossWeights = field(default_factory=LossWeights)
    """Weights of examples in the loss."""
    devices_that_compute: tuple[str, ...] = ()
    """Devices that compute, if they are not `places`, which hold the parameters."""
    updates_an_epoch: int = 1
    threads: int = OWN_THREADS
    """Threads of one call of the library."""

    @property
    def policy(self) -> Policy:
        """A policy of the job's mode, new each time."""
        policy: Policy = self.job.facts.policy(self.job.mode_options, self.job.pieces, self.speeds)
        return policy

    @property
    def optimizer(self) -> Optimizer:
        """The job's optimizer, in the job's arithmetic."""
        return self.arithmetic.optimizer(optimizer_of(self.job.optimizer))

    @property
    def arithmetic(self) -> Arithmetic:
        """Return what computes sums, norms and updates."""
        return arithmetic_of(self.job.arithmetic)

    @property
    def step_recipe(self) -> StepRecipe:
        """Return how a step is made of its slots."""
        job = self.job
        return StepRecipe(
            job.pieces, job.clip_norm, job.l2, self.arithmetic, logs=self.several_a_call
        )

    @property
    def gradient_of(self) -> GradientOfBatch:
        """The gradient of the job's loss."""
        return GradientOfBatch(self.network, self.job, self.weights, threads=self.threads)

    @property
    def several_a_call(self) -> bool:
        """Whether a call may do several updates."""
        return self.job.several_a_call(by_library=self.job.arithmetic == LIBRARY)

    @property
    def wire(self) -> Wire:
        """The job's codecs."""
        return Wire(*(codec.within(self.updates_an_epoch) for codec in wire_codecs(self.job.codec)))

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices of `places`, in order."""
        return tuple(self.places.values())

    @property
    def computing(self) -> tuple[str, ...]:
        """The devices that compute gradients, for modes that place them themselves."""
        return self.devices_that_compute or self.devices


def optimizer_of(config: Choice) -> Optimizer:
    """The optimizer that a job's section `optimizer` describes."""
    return OPTIMIZERS[config.name].from_options(config)  # type: ignore[attr-defined, no-any-return]


def codec_of(config: Choice) -> Codec:
    """The codec that a job's section `codec` describes."""
    return CODECS[config.name].from_options(config)  # type: ignore[attr-defined, no-any-return]


def wire_codecs(config: Choice) -> tuple[Codec, Codec]:
    """The codecs of pulls and pushes.

    A codec that keeps values back encodes changes only: it names another one for pulls, or none.
    """
    push = codec_of(config)
    return push.for_pulls or Fp32(), push


def mode_of(setup: Setup) -> Mode:
    """The job's mode with its parameters placed and its functions traced. Raises ClusterError."""
    module, _, name = setup.job.facts.mechanism.partition(":")
    mode: Mode = getattr(import_module(module), name)(setup)
    return mode


def float32(*shape: int | None) -> Any:
    """A float32 tensor of this shape."""
    return tf.TensorSpec(shape, tf.float32)


def int32(*shape: int | None) -> Any:
    """An int32 tensor of this shape."""
    return tf.TensorSpec(shape, tf.int32)


def int64(*shape: int | None) -> Any:
    """An int64 tensor of this shape."""
    return tf.TensorSpec(shape, tf.int64)


def standardization_of(windows: WorkerWindows) -> Any:
    """Mean and deviation of each channel."""
    return float32(2, standardized_channels(windows.dataset))
