"""Whole steps of the modes with the same bits, in this process, by the product's graphs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import core.engine.runtime  # noqa: F401  (its options decide how graphs are optimized)
from cluster.apps.app import App
from cluster.apps.app_network import AppNetwork, Kind
from cluster.apps.networks import network_of
from cluster.jobs.fit import Update
from cluster.jobs.modes import Mode, Setup, Stretch, mode_of
from core.consistency import Grant, Speeds
from core.data import Dataset
from core.data.dataset import Array
from core.engine.devices import HOST
from core.engine.workers import Outcome
from core.inventory import TrainJob
from core.inventory.extensions import MODELS
from core.models.layers import Dropout, Product
from core.models.network import BuiltIn, Network, Problem, build
from core.models.operations import Operations, Tensor
from core.models.thesis import ThesisModel
from core.parameters import Vector
from ps_node.shard import VectorState
from worker_node.recordings import LossWeights, Standardization, WorkerWindows

PROBLEM = Problem((16, 6), 4, keep_probability=0.8)
ROWS = 64
EVERY_ROW = np.arange(ROWS)
UPDATES = 3
RATE = 0.05
EXACT = (("sync", 2), ("allreduce", 1))
"""Modes with the bits of `single`, and in how many parts each takes an update."""


class Scaled(BuiltIn):
    """Its gradient and its statistics run through several factors that are known when it is traced.

    TensorFlow's graph optimizer multiplies such factors with each other, and with the share of a
    slot in its batch where that is known too.
    """

    @classmethod
    def widest_layer(cls, options: ThesisModel) -> int:
        return options.hidden

    def __init__(self, problem: Problem) -> None:
        self._hidden = Product("hidden", problem.channels, 32)
        self._head = Product("head", 32, problem.classes)
        self._dropout = Dropout(problem.keep_probability, site=0)
        super().__init__(ThesisModel(), problem, [self._hidden, self._head])

    def logits(self, ops: Operations, windows: Tensor) -> Tensor:
        hidden = self._dropout(ops, ops.unary("relu", self._hidden(ops, windows)))
        return 0.3 * self._head(ops, 1.7 * ops.reduce("mean", hidden, 1) / 0.9)


def built_in(name: str, **options: object) -> BuiltIn:
    """A network of the product for the windows of `recordings`."""
    config = MODELS[name].Options.model_validate({"name": name, **options})
    shape: dict[str, Any] = {"window_steps": PROBLEM.window_steps, "channels": PROBLEM.channels}
    return build(config, **shape, classes=PROBLEM.classes)


def of_app(make: object, **functions: Any) -> AppNetwork:
    """The network of an app whose model() is `make`, for the windows of `recordings`."""
    app = App("here", Path("here.py"), None, {"model": make, **functions})  # type: ignore[dict-item]
    shapes = (PROBLEM.outputs, PROBLEM.input_shape, "float32", (), "int32")
    return network_of(app, Kind("classification", *shapes), 0)


def job_of(mode: str, **others: object) -> TrainJob:
    common = {"mode": mode, "batch_size": 20, "slots": 2, "label_smoothing": 0.1}
    return TrainJob.model_validate({**common, "local": {"steps": 2}, **others})


def recordings(folder: Path) -> Dataset:
    """Windows that no model can learn, in the files that workers map."""
    random = np.random.default_rng(1)
    shape = (ROWS, PROBLEM.window_steps, PROBLEM.channels)
    random.normal(1.0, 3.0, shape).astype("<f4").tofile(folder / "windows.f32")
    (EVERY_ROW % PROBLEM.classes).astype("<i4").tofile(folder / "classes.i32")
    inputs = Array("windows.f32", "float32", PROBLEM.input_shape)
    targets = Array("classes.i32", "int32", ())
    return Dataset("here", "here", "", folder, tuple("abcd"), ROWS, 0, "", inputs, targets)


class InTurn:
    """The policy's half that a mode asks: a step is complete once every slot came."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._came = 0

    step_seconds = 0.0

    def replied(self, grant: Grant, task: int, seconds: float, done: int | None = None) -> range:
        self._came = (self._came + grant.slots) % self._slots
        return grant.numbers if self._came == 0 else range(0)

    def counted(self, update: int) -> list[int]:
        return list(range(self._slots))


def measured(network: Network, data: Dataset, seed: int = 0) -> tuple[Vector, NDArray[np.float32]]:
    """Return the parameters of an untrained network that knows every row, and a standardization."""
    standardization = Standardization.of_rows(data, EVERY_ROW)
    packed = standardization.packed()
    blocks = standardization.blocks(data, EVERY_ROW)
    return network.measured(network.initial(seed), packed, blocks), packed


def placed(
    network: Network,
    job: TrainJob,
    data: Dataset,
    on: tuple[str, ...] = (),
    live: int = 1,
) -> tuple[Mode, Stretch]:
    """A job's mode with its parameters in this process, and a stretch that begins with update 0."""
    vector, standardization = measured(network, data, job.seed)
    mode = mode_of(
        Setup(
            job,
            network,
            WorkerWindows(data),
            VectorState(vector),
            {0: HOST},
            Speeds(),
            weights=LossWeights.from_setting(job.class_weights, data, EVERY_ROW),
            devices_that_compute=on,
        )
    )
    mode.of_fit(job.seed)
    return mode, Stretch(0, lambda batch: RATE, standardization, lambda: live)


def update_of(number: int, job: TrainJob) -> Update:
    """The update of this number, over rows of its own draw."""
    batches = job.facts.batches(job.mode_options)
    rows = np.random.default_rng(number).permutation(ROWS)[: job.batch_size * batches]
    first = number * batches
    shaped = rows.astype(np.int32).reshape(batches, job.batch_size)
    return Update(number, tuple(range(first, first + batches)), shaped)


def trained(
    network: Network,
    job: TrainJob,
    data: Dataset,
    parts: int = 1,
    on: tuple[str, ...] = (),
) -> tuple[Vector, list[float]]:
    """Return the vector after some updates, each in `parts` parts, and the losses."""
    mode, stretch = placed(network, job, data, on)
    mode.policy = InTurn(job.pieces)  # type: ignore[assignment]
    slots = job.pieces // parts
    losses = list[float]()
    for number in range(UPDATES):
        update = update_of(number, job)
        for part in range(parts):
            grant = Grant(number, part * slots, slots)
            item = mode.item(grant, [update], stretch)
            value = item.function.answer(*item.arguments)
            for result in mode.read(grant, [update], Outcome(item, 0, value, 0.1, 1), stretch):
                losses += result.step.losses.values() if result.step else []
    last = mode.settle()
    if last is not None:
        last.function.answer(*last.arguments)
    return mode.shards.read(), losses


def agreed(
    network: Network,
    data: Dataset,
    modes: Sequence[tuple[str, int]] = EXACT,
    **job: object,
) -> tuple[Vector, list[float]]:
    """What `single` trains, once the other exact modes have the same bits and losses."""
    expected, losses = trained(network, job_of("single", **job), data)
    assert len(set(losses)) == UPDATES
    assert not np.array_equal(expected, network.initial(0))
    for mode, parts in modes:
        found, same = trained(network, job_of(mode, **job), data, parts)
        same_bits(found, expected, f"{mode} in {parts}")
        assert same == losses
    return expected, losses


def same_bits(found: Vector, expected: Vector, said: str = "") -> None:
    np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32), err_msg=said)
