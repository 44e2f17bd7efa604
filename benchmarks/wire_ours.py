"""Our training step on the same network, a process of its own: `python -m benchmarks.wire_ours`.

The step is the product's (`cluster.jobs.training.traced` over `ParameterShards`, scheduled by the `Dispatcher`); only
the network is the benchmark's. Prints one JSON object as its last line.
"""

import tempfile
from itertools import count
from pathlib import Path

import numpy as np

from benchmarks.wire_network import BATCH, LEARNING_RATE, PROBLEM, ResidualBidirectional, windows
from benchmarks.wire_steps import arguments, report, timed_steps
from cluster.data import Dataset
from cluster.engine.messages import Item
from cluster.engine.optimizers import Adam
from cluster.engine.shards import ParameterShards
from cluster.inventory import load
from cluster.inventory.training import TrainJob
from cluster.jobs.cancel import Cancel
from cluster.jobs.recordings import Standardization, WorkerWindows
from cluster.jobs.session import Session
from cluster.jobs.training import FUNCTION, traced


def dataset_in(folder: Path) -> Dataset:
    """Two batches of windows in the files that workers map."""
    features, classes = windows(2 * BATCH)
    features.astype("<f4").tofile(folder / "windows.f32")
    classes.astype("<i4").tofile(folder / "classes.i32")
    return Dataset(
        name="noise", source="benchmarks.wire", source_sha256="", folder=folder,
        labels=tuple(f"class {k}" for k in range(PROBLEM.classes)), window_steps=PROBLEM.window_steps,
        channels=PROBLEM.channels, train_windows=2 * BATCH, test_windows=0, sha256="",
    )  # fmt: skip


def main() -> None:
    """Train for the steps asked for and print what they moved."""
    given = arguments("benchmarks.wire_ours").parse_args()
    inventory = load(given.inventory)
    network = ResidualBidirectional()
    job = TrainJob.model_validate({"batch_size": BATCH, "micro_batches": 1, "clip_norm": None, "label_smoothing": 0.0})
    identifiers = count()
    packed = Standardization(np.zeros(PROBLEM.channels, np.float32), np.ones(PROBLEM.channels, np.float32)).packed()
    with tempfile.TemporaryDirectory(prefix="pscluster-benchmark-") as folder, Session(inventory, Cancel()) as session:
        shards = ParameterShards(network.layout, network.initial(0), Adam(), len(session.servers))
        function = traced(job, network, WorkerWindows(dataset_in(Path(folder))), shards)
        dispatcher = session.dispatch({FUNCTION: function}, job.deadline_seconds)

        def item(identifier: int) -> Item:
            rows = (np.arange(BATCH, dtype=np.int32) + identifier * BATCH) % (2 * BATCH)
            seed = np.array([0, identifier], np.int32)
            return Item(identifier, FUNCTION, (np.int64(identifier), rows, np.float32(LEARNING_RATE), seed, packed))

        def run(steps: int) -> list[float]:
            items = (item(next(identifiers)) for _ in range(steps))
            return [float(outcome.value[0]) for outcome in dispatcher.run(items)]

        report("ours", network.layout.trained_size, timed_steps(inventory, run, given))


if __name__ == "__main__":
    main()
