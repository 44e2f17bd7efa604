"""Our training step on the same network, a process of its own: `python -m benchmarks.wire.ours`.

The step is the product's (`mode: async`, or `local`, over the inventory's parameter servers,
scheduled by the `Dispatcher`); only the network is the benchmark's. Prints one JSON object as its
last line.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import numpy as np

from benchmarks.wire.network import BATCH, LEARNING_RATE, PROBLEM, ResidualBidirectional, windows
from benchmarks.wire.steps import arguments, report, timed_steps
from cluster.jobs.cancel import Cancel
from cluster.jobs.fit import Update
from cluster.jobs.job_metrics import CoordinatorMetrics
from cluster.jobs.modes import Mode, Setup, Stretch, mode_of
from cluster.jobs.modes.pushes import HEAD
from cluster.jobs.session import Session
from core.consistency import Grant, Speeds
from core.data import Dataset
from core.data.dataset import CLASSES, WINDOWS, Array
from core.engine.dispatcher import Dispatcher
from core.engine.workers import Item
from core.ground.accounts import account_for_roles
from core.inventory import load
from core.inventory.training import TrainJob
from core.server.rights import prepared_folders
from ps_node.shard import VectorState
from worker_node.recordings import Standardization, WorkerWindows

LOCAL_STEPS = 10
"""Batches between pull and push of `local`."""

VARIANTS = {
    "ours": ("async", "fp32"),
    "ours_fp16": ("async", "fp16"),
    "ours_int8": ("async", "int8"),
    "ours_int4": ("async", "int4"),
    "ours_onebit": ("async", "onebit"),
    "ours_local_int8": ("local", "int8"),
}
"""Mode and codec of each variant."""


@contextmanager
def two_batches() -> Iterator[Dataset]:
    """Two batches of windows in files that workers map: where their cage lets them read."""
    place = prepared_folders(account_for_roles())[-1]
    with tempfile.TemporaryDirectory(prefix="benchmark-", dir=place) as folder:
        yield _dataset_in(Path(folder))


def _dataset_in(folder: Path) -> Dataset:
    features, classes = windows(2 * BATCH)
    folder.chmod(0o755)  # workers that root started are another account
    features.astype("<f4").tofile(folder / WINDOWS)
    classes.astype("<i4").tofile(folder / CLASSES)
    return Dataset(
        name="noise",
        source="benchmarks.wire",
        source_sha256="",
        folder=folder,
        labels=tuple(f"class {k}" for k in range(PROBLEM.classes)),
        train_windows=2 * BATCH,
        test_windows=0,
        sha256="",
        inputs=Array(WINDOWS, "float32", (PROBLEM.window_steps, PROBLEM.channels)),
        targets=Array(CLASSES, "int32", ()),
    )


def job_of(variant: str) -> TrainJob:
    """Hold each batch to one piece, and to what the other variants do too."""
    mode, codec = VARIANTS[variant]
    return TrainJob.model_validate(
        {
            "batch_size": BATCH,
            "slots": 1,
            "clip_norm": None,
            "label_smoothing": 0.0,
            "optimizer": {"name": "adam", "learning_rate": LEARNING_RATE, "epsilon": 1e-7},
            "mode": mode,
            "local": {"steps": LOCAL_STEPS},
            "codec": {"name": codec},
        }
    )


def steps_of(job: TrainJob, mode: Mode, dispatcher: Dispatcher) -> Callable[[int], list[float]]:
    """A function that runs updates of this many more batches, and returns the batches' losses.

    In `local` these are rounded up to whole updates.
    """
    batches = job.facts.batches(job.mode_options)
    standardization = Standardization(
        np.zeros(PROBLEM.channels, np.float32), np.ones(PROBLEM.channels, np.float32)
    )
    stretch = Stretch(
        0, lambda batch: LEARNING_RATE, standardization.packed(), lambda: len(dispatcher.live)
    )
    identifiers = count()

    def item(number: int) -> Item:
        batch_numbers = range(number * batches, (number + 1) * batches)
        rows = (
            np.arange(BATCH, dtype=np.int32) + np.array([batch_numbers], np.int32).T * BATCH
        ) % (2 * BATCH)
        update = Update(number, tuple(batch_numbers), rows)
        return mode.item(Grant(number, 0, 1), [update], stretch)

    def run(steps: int) -> list[float]:
        items = (item(next(identifiers)) for _ in range(-(-steps // batches)))
        values = [outcome.value for outcome in dispatcher.run(items)]
        if job.mode == "local":
            return [float(loss) for value in values for loss in value[HEAD:][::3]]
        return [float(value[0]) for value in values]

    return run


def main() -> None:
    """Train for the steps asked for and print what they moved."""
    parser = arguments("benchmarks.wire.ours")
    parser.add_argument("--variant", choices=VARIANTS, default="ours")
    options = parser.parse_args()
    inventory = load(options.inventory)
    network = ResidualBidirectional()
    job = job_of(options.variant)
    with (
        two_batches() as dataset,
        CoordinatorMetrics() as metrics,
        Session(inventory, Cancel(), metrics) as session,
    ):
        data = WorkerWindows(dataset)
        state = VectorState(network.initial(0))
        places = dict(enumerate(session.places))
        mode = mode_of(Setup(job, network, data, state, places, Speeds()))
        dispatcher = session.dispatch(job.deadline_seconds)
        report(
            options.variant,
            network.layout.trained_size,
            timed_steps(inventory, steps_of(job, mode, dispatcher), options),
        )


if __name__ == "__main__":
    main()
