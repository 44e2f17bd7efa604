"""Many workers and parameter servers on one machine: start, a death, the coordinator's CPU time.

The supervisor starts the roles, as `fab deploy start` does. The job `train` then runs one plain
layer of 48 units on windows of noise, 8 windows a batch (`async`) or a slot (`sync`, a slot a
worker), with the first workers alone and with all of them. What the coordinator takes for an update
or for a worker's part of a step is its processor time between the ends of two epochs, after those
in which the workers load their functions. In the last run of `async` a worker is killed: the death
counts as noticed when the coordinator's log says that the worker left.
"""

import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import pscluster
from benchmarks.beds.local_cluster import PLAIN_LAYERS, LocalCluster
from benchmarks.report import arguments, memory_bytes, publish, tell
from benchmarks.scaling import EpochClock
from core.ground.waiting import until
from core.inventory import load

MODES = ("async", "sync")
WINDOWS_OF_PART = 8
STEPS = 16
CHANNELS = 9
CLASSES = 6
WARM_UP = 2
"""Epochs that do not count: the workers load their functions."""
DEATH_SECONDS = 60.0
LOOK_SECONDS = 0.02
ONE_LAYER = PLAIN_LAYERS.format(48).replace("n_stacked_layers: 3", "n_stacked_layers: 1")


@dataclass(frozen=True)
class Plan:
    """What is measured: numbers of `workers`, and how many updates of a worker make an epoch."""

    workers: tuple[int, ...]
    servers: int
    parts_of_worker: int
    epochs: int


PLANS = {
    "full": Plan((8, 32, 128), 8, 16, 5),
    "quick": Plan((4, 16), 2, 16, 4),
    "smoke": Plan((2,), 1, 2, 3),
}


@dataclass
class Death:
    """Kills a process once the run is warm, and waits for the coordinator's line on it."""

    task: int
    process_id: int
    runs: Path
    seconds: float | None = None
    _thread: threading.Thread | None = field(default=None, repr=False)

    def begin(self, epochs: int) -> None:
        """After the first epoch kill the process, and wait for the line in a thread."""
        if epochs > 1:
            return
        self._thread = threading.Thread(target=self._wait, name="death")
        self._thread.start()

    def join(self) -> None:
        """Wait for the end of the wait."""
        if self._thread is not None:
            self._thread.join()

    def _wait(self) -> None:
        log = max(self.runs.glob("*-train/coordinator.log"), key=lambda path: path.stat().st_mtime)
        begin = time.monotonic()
        os.kill(self.process_id, signal.SIGKILL)
        line = f"worker:{self.task} left"
        if until(lambda: line in log.read_text(), DEATH_SECONDS, LOOK_SECONDS):
            self.seconds = time.monotonic() - begin


def _nothing(epochs: int) -> None:
    """Do nothing after an epoch."""


def recordings(path: Path, windows: int) -> None:
    """Seeded noise in the form of a user's recordings: the content does not change the time."""
    generator = np.random.default_rng(0)
    train = generator.standard_normal((windows, STEPS, CHANNELS), np.float32)
    classes = np.arange(windows) % CLASSES
    few = slice(CLASSES)
    np.savez(path, x_train=train, y_train=classes, x_test=train[few], y_test=classes[few])


def measure(
    plan: Plan, mode: str, workers: int, cluster: LocalCluster, death: Death | None
) -> dict[str, Any]:
    """Return what the coordinator takes for a part with so many workers."""
    shared = workers if mode == "sync" else 1
    part_count = plan.parts_of_worker * workers
    source = cluster.folder / f"noise-{workers}.npz"
    if not source.exists():
        recordings(source, WINDOWS_OF_PART * part_count)
    values = {
        "mode": mode,
        "batch_size": WINDOWS_OF_PART * shared,
        "slots": shared,
        "epochs": plan.epochs,
        "validation_subjects": 0,
        "refit": "false",
        "data.source": source,
    }
    settings = [ONE_LAYER, *(f"jobs.train.{key}={value}" for key, value in values.items())]
    clock = EpochClock(cluster.folder / "runs", {}, death.begin if death else _nothing)
    begin = time.monotonic()
    try:
        cluster.of_workers(workers).job("train", settings, clock.start)
    finally:
        clock.stop()
        if death is not None:
            death.join()
    first = clock.readings[WARM_UP - 1]
    last = clock.readings[-1]
    counted = part_count * (len(clock.readings) - WARM_UP)
    processor_seconds = last[1]["coordinator:0"] - first[1]["coordinator:0"]
    return {
        "mode": mode,
        "workers": workers,
        "coordinator_cpu_ms": 1e3 * processor_seconds / counted,
        "parts_per_second": counted / (last[0] - first[0]),
        "first_epoch_seconds": clock.readings[0][0] - begin,
        "death_noticed_seconds": death.seconds if death else None,
    }


def thread_count(process_id: int) -> int:
    """Return how many threads a process has. Raises OSError when it is gone."""
    return len(os.listdir(f"/proc/{process_id}/task"))


def summarize(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of the largest number of workers; the first row is the start."""
    start, *rows = rows
    most = start["workers"]
    return {
        "workers": most,
        "ready_seconds": start["ready_seconds"],
        "death_noticed_seconds": next(
            (row["death_noticed_seconds"] for row in rows if row.get("death_noticed_seconds")), None
        ),
        "coordinator_cpu_ms": {
            row["mode"]: row["coordinator_cpu_ms"] for row in rows if row["workers"] == most
        },
    }


def main() -> None:
    """Measure and print the object."""
    parser = arguments("crowd", "What 128 workers and 8 parameter servers on one machine take.")
    parser.add_argument("--workers", type=int, help="the largest number of workers; default 128")
    parser.add_argument("--modes", default=",".join(MODES), help="modes, with commas")
    options = parser.parse_args()
    plan = PLANS[options.size]
    most = options.workers or max(plan.workers)
    with tempfile.TemporaryDirectory(prefix="pscluster-benchmark-") as temporary:
        folder = Path(temporary)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        begin = time.monotonic()
        with pscluster.local(most, plan.servers, report=lambda line: None) as crowd:
            ready = time.monotonic() - begin
            pids = {role["task"]: role["pid"] for role in crowd.status()["roles"] if role["pid"]}
            start = {
                "workers": most,
                "servers": plan.servers,
                "ready_seconds": ready,
                "threads_of_role": statistics.median(map(thread_count, pids.values())),
                "anonymous_mb_of_role": statistics.median(map(memory_bytes, pids.values())) / 1e6,
            }
            tell(start)
            cluster = LocalCluster(load(crowd.inventory), {}, folder)
            rows = []
            for mode in options.modes.split(","):
                for workers in sorted({k for k in plan.workers if k < most} | {most}):
                    killed = None
                    if mode == "async" and workers == most and most > 1:
                        killed = Death(most - 1, pids[f"worker:{most - 1}"], folder / "runs")
                    rows.append(measure(plan, mode, workers, cluster, killed))
                    tell(rows[-1])
    publish("crowd", [start, *rows], summarize([start, *rows]), options)


if __name__ == "__main__":
    main()
