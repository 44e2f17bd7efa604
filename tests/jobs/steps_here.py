"""Whole steps of the modes that have the same bits, in this process: the graphs are the product's."""

from pathlib import Path

import numpy as np

from cluster.consistency.policy import Grant, Speeds
from cluster.data import Dataset
from cluster.data.dataset import Array
from cluster.engine.devices import HOST
from cluster.engine.messages import Outcome
from cluster.inventory import TrainJob
from cluster.jobs.fit import Update
from cluster.jobs.modes.mode import Setup, Stretch, mode_of
from cluster.models.distillation import Teacher
from cluster.models.network import Network, Problem
from cluster.parameters import Vector
from ps_node.shard import VectorState
from worker_node.recordings import Standardization, WorkerWindows
from worker_node.weights import LossWeights

PROBLEM = Problem((16, 6), 4, keep_probability=0.8)
ROWS, UPDATES = 64, 3
RATE = 0.05


def recordings(folder: Path) -> Dataset:
    """Windows that no model can learn, in the files that workers map."""
    random, shape = np.random.default_rng(1), (ROWS, PROBLEM.window_steps, PROBLEM.channels)
    random.normal(1.0, 3.0, shape).astype("<f4").tofile(folder / "windows.f32")
    (np.arange(ROWS) % PROBLEM.classes).astype("<i4").tofile(folder / "classes.i32")
    labels = tuple("abcd")
    inputs, targets = Array("windows.f32", "float32", PROBLEM.input_shape), Array("classes.i32", "int32", ())
    return Dataset("here", "here", "", folder, labels, ROWS, 0, "", inputs, targets)


class InTurn:
    """The policy's half that a mode asks: a step is complete once every micro-batch came."""

    def __init__(self, slots: int) -> None:
        self._slots, self._came = slots, 0

    def replied(self, grant: Grant, task: int, seconds: float) -> bool:
        self._came = (self._came + grant.slots) % self._slots
        return self._came == 0

    def counted(self, update: int) -> list[int]:
        return list(range(self._slots))


def trained(
    network: Network, job: TrainJob, data: Dataset, parts: int = 1, on: tuple[str, ...] = (),
    teachers: tuple[Teacher, ...] = (), teacher: int = 0,
) -> tuple[Vector, list[float]]:  # fmt: skip
    """The vector after some updates, each granted in `parts` parts, and the loss of each; computed `on` devices.

    `teacher` is the place of the one among `teachers` that `job.distill` learns from.
    """
    weights, every_row = LossWeights.of(job.class_weights, data, np.arange(ROWS)), np.arange(ROWS)
    standardization = Standardization.of(data, every_row)
    packed = standardization.packed()
    state = VectorState(network.measured(network.initial(job.seed), packed, standardization.blocks(data, every_row)))
    mode = mode_of(Setup(
        job, network, WorkerWindows(data), state, {0: HOST}, 1, Speeds(), weights=weights, devices_that_compute=on,
        teachers=teachers,
    ))  # fmt: skip
    mode.policy = InTurn(job.pieces)  # type: ignore[assignment]
    mode.of_fit(job.seed, teacher)
    stretch = Stretch(0, lambda batch: RATE, packed, lambda: 1)
    slots, losses = job.pieces // parts, list[float]()
    for number in range(UPDATES):
        rows = np.random.default_rng(number).permutation(ROWS)[: job.batch_size].astype(np.int32)
        update = Update(number, (number,), rows[None])
        for part in range(parts):
            grant = Grant(number, part * slots, slots)
            item = mode.item(grant, update, stretch)
            value = mode.functions[item.function].answer(*item.arguments)
            found = mode.read(grant, update, Outcome(item, 0, value, 0.1, 1), stretch)
            losses += found.step.losses.values() if found.step else []
    last = mode.settle()
    if last is not None:
        mode.functions[last.function].answer(*last.arguments)
    return mode.shards.read(), losses
