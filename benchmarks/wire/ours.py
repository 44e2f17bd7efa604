"""Our training step on the same network, a process of its own: `python -m benchmarks.wire.ours`.

The step is the product's (`mode: async` over the inventory's parameter servers, scheduled by the
`Dispatcher`); only the network is the benchmark's. Prints one JSON object as its last line.
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

CODECS = {"ours": "fp32", "ours_fp16": "fp16"}
"""Of each variant."""


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


def job_of(codec: str) -> TrainJob:
    """Hold each update to one batch in one piece, and to what the other variants do too."""
    return TrainJob.model_validate(
        {
            "batch_size": BATCH,
            "slots": 1,
            "clip_norm": None,
            "label_smoothing": 0.0,
            "optimizer": {"name": "adam", "learning_rate": LEARNING_RATE, "epsilon": 1e-7},
            "codec": {"name": codec},
        }
    )


def steps_of(mode: Mode, dispatcher: Dispatcher) -> Callable[[int], list[float]]:
    """A function that runs this many more updates, in order, and returns their losses."""
    standardization = Standardization(
        np.zeros(PROBLEM.channels, np.float32), np.ones(PROBLEM.channels, np.float32)
    )
    stretch = Stretch(
        0, lambda batch: LEARNING_RATE, standardization.packed(), lambda: len(dispatcher.live)
    )
    identifiers = count()

    def item(number: int) -> Item:
        rows = (np.arange(BATCH, dtype=np.int32) + number * BATCH) % (2 * BATCH)
        return mode.item(Grant(number, 0, 1), Update(number, (number,), rows[None]), stretch)

    def run(steps: int) -> list[float]:
        items = (item(next(identifiers)) for _ in range(steps))
        return [float(outcome.value[0]) for outcome in dispatcher.run(items)]

    return run


def main() -> None:
    """Train for the steps asked for and print what they moved."""
    parser = arguments("benchmarks.wire.ours")
    parser.add_argument("--variant", choices=CODECS, default="ours")
    given = parser.parse_args()
    inventory = load(given.inventory)
    network = ResidualBidirectional()
    job = job_of(CODECS[given.variant])
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
            given.variant,
            network.layout.trained_size,
            timed_steps(inventory, steps_of(mode, dispatcher), given),
        )


if __name__ == "__main__":
    main()
