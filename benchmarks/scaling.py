"""Windows per second of many slow workers beside as many times one of them, for each mode.

And of unequal workers.

Role processes are real. The kernel limits each worker to a share of a core
(`benchmarks.beds.cpu_quota`), but neither parameter server nor coordinator. The job `train` runs
three plain layers of 32 units on windows of noise, 100 windows a worker and step. Graphs are
instantiated in a run's first epoch, after which the quotas are set; a figure is the median over the
epochs from the third on. Runs with one worker and with all of them take turns.
"""

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.beds.cpu_quota import PERIOD_MICROSECONDS, limited, period_of, why_not
from benchmarks.beds.local_cluster import PLAIN_LAYERS, LocalCluster, local_cluster
from benchmarks.report import arguments, publish, tell
from cluster.jobs.busy import keep_calibration

MODES = ("async", "local", "sync")
UNEQUAL_MODES = ("async", "sync")
UNEQUAL = (1.0, 1.0, 1.0, 0.25)
"""Of the share that each equal worker has."""
WINDOWS_OF_STEP = 100
STEPS = 128
CHANNELS = 9
CLASSES = 6
TEST_WINDOWS = 6
LOOK_SECONDS = 0.05
WARM_UP = 2
"""Epochs that do not count: the first without quotas, the second in which they begin."""


@dataclass(frozen=True)
class Run:
    """One training run: `shares` of a core, a worker each.

    `pieces` micro-batches for every 100 windows.
    """

    mode: str
    shares: tuple[float, ...]
    steps_of_epoch: int
    epochs: int
    pieces: int = 1
    calibrated: bool = False
    period_microseconds: int = PERIOD_MICROSECONDS

    @property
    def batch_size(self) -> int:
        """Windows of an update: synchronous workers share one."""
        return WINDOWS_OF_STEP * (len(self.shares) if self.mode == "sync" else 1)

    @property
    def windows(self) -> int:
        """Windows of an epoch: as many for each worker, however many there are."""
        return WINDOWS_OF_STEP * self.steps_of_epoch * len(self.shares)

    @property
    def settings(self) -> list[str]:
        """The settings of the job."""
        micro_batches = self.pieces * (len(self.shares) if self.mode == "sync" else 1)
        values = {
            "mode": self.mode,
            "batch_size": self.batch_size,
            "slots": micro_batches,
            "epochs": self.epochs,
            "validation_subjects": 0,
            "refit": "false",
        }
        settings = [f"jobs.train.{key}={value}" for key, value in values.items()]
        return [PLAIN_LAYERS.format(32), *settings]


@dataclass(frozen=True)
class Plan:
    """What is measured.

    A worker takes as many steps in an epoch of each mode, and `local` pushes after eight: an epoch
    has a multiple of those, or its end alone would decide.
    """

    workers: int
    share: float
    steps_of_epoch: int
    epochs: int
    rounds: int = 1
    modes: tuple[str, ...] = MODES
    unequal_modes: tuple[str, ...] = ()

    def run(self, mode: str, pieces: int, least_share: float) -> Run:
        """Return the run of one worker, beside whom none has less than this share."""
        period = period_of(least_share)
        shape = (self.steps_of_epoch, self.epochs, pieces)
        return Run(mode, (self.share,), *shape, period_microseconds=period)


PLANS = {
    "full": Plan(8, 0.2, 40, 5, rounds=3, unequal_modes=UNEQUAL_MODES),
    "quick": Plan(4, 0.4, 24, 3),
    "smoke": Plan(4, 0.4, 2, 3, modes=("async",), unequal_modes=("sync",)),
}


def recordings(path: Path, windows: int) -> None:
    """Seeded noise in the form of a user's recordings: the content does not change the time."""
    generator = np.random.default_rng(0)
    train = generator.standard_normal((windows, STEPS, CHANNELS), np.float32)
    classes = np.arange(windows) % CLASSES
    np.savez(
        path,
        x_train=train,
        y_train=classes,
        x_test=train[:TEST_WINDOWS],
        y_test=classes[:TEST_WINDOWS],
    )


def cpu_seconds(process_id: int) -> float:
    """Processor time that a process has taken so far, of user and system.

    Raises OSError when it is gone.
    """
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class EpochClock:
    """Reads the processor time of some processes whenever a run's history has another epoch."""

    def __init__(
        self, runs: Path, process_ids: Mapping[str, int], ended: Callable[[int], object]
    ) -> None:
        """`ended` is called after each epoch, with how many there were."""
        self.readings: list[tuple[float, dict[str, float]]] = []
        """Monotonic time and seconds by process after each epoch."""
        self._runs = runs
        self._process_ids = dict(process_ids)
        self._ended = ended
        self._stop = threading.Event()
        self._before = set(runs.glob("*/"))
        self._thread = threading.Thread(target=self._watch, name="epochs")

    def start(self, coordinator: int) -> None:
        """Begin; the coordinator is watched as well."""
        self._process_ids["coordinator:0"] = coordinator
        self._thread.start()

    def stop(self) -> list[dict[str, Any]]:
        """End; the epochs of the run's `history.jsonl`."""
        self._stop.set()
        self._thread.join()
        return [json.loads(line) for line in self._lines()]

    def _lines(self) -> list[bytes]:
        paths = [
            folder / "history.jsonl" for folder in set(self._runs.glob("*-train*/")) - self._before
        ]
        lines = [line for path in paths if path.exists() for line in path.read_bytes().splitlines()]
        return [
            line for line in lines if line.startswith(b'{"event":"epoch",') and line.endswith(b"}")
        ]

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            if len(self._lines()) <= len(self.readings):
                continue
            self._ended(len(self.readings) + 1)
            try:
                taken = {
                    name: cpu_seconds(process_id) for name, process_id in self._process_ids.items()
                }
            except OSError:  # the coordinator has ended, and with it the last epoch
                return
            self.readings.append((time.monotonic(), taken))


def measure(run: Run, cluster: LocalCluster) -> dict[str, Any]:
    """Return the run's windows a second and where the processor time went."""
    workers = [cluster.processes[f"worker:{k}"].pid for k in range(len(run.shares))]
    servers = {
        name: process.pid for name, process in cluster.processes.items() if name.startswith("ps")
    }
    named = {f"worker:{k}": process_id for k, process_id in enumerate(workers)}
    source = cluster.folder / f"noise-{run.windows}.npz"
    if not source.exists():
        recordings(source, run.windows)
    kept = cluster.folder / "runs" / f"calibration-{cluster.inventory.cluster}.json"
    kept.unlink(missing_ok=True)
    if run.calibrated:
        kept.parent.mkdir(exist_ok=True)
        rates = {f"worker:{k}": 1e9 * share for k, share in enumerate(run.shares)}
        keep_calibration(kept.parent, cluster.inventory.cluster, rates)
    few = cluster.of_workers(len(run.shares))
    quotas = limited(dict(zip(workers, run.shares, strict=True)), run.period_microseconds)
    with ExitStack() as stack:
        clock = EpochClock(
            cluster.folder / "runs",
            {**named, **servers},
            lambda epoch: epoch == 1 and stack.enter_context(quotas),
        )
        try:
            result = few.job(
                "train", [*run.settings, f"jobs.train.data.source={source}"], clock.start
            )
        finally:
            events = clock.stop()
    return row_of(run, events, clock.readings, result)


def row_of(
    run: Run,
    events: Sequence[Mapping[str, Any]],
    readings: Sequence[tuple[float, Mapping[str, float]]],
    result: Mapping[str, Any],
) -> dict[str, Any]:
    """Figures of the epochs behind the warm-up.

    Processor times are those between its end and the last reading.
    """
    rates = [float(event["windows_per_second"]) for event in events[WARM_UP:]]
    begin, before = readings[WARM_UP - 1]
    end, after = readings[-1]
    taken = {name: after[name] - before[name] for name in after}
    windows = run.windows * (len(readings) - WARM_UP)
    quota = sum(run.shares) * (end - begin)
    of_workers = sum(seconds for name, seconds in taken.items() if name.startswith("worker:"))
    return {
        "mode": run.mode,
        "workers": len(run.shares),
        "shares": list(run.shares),
        "micro_batches": run.pieces * (len(run.shares) if run.mode == "sync" else 1),
        "calibrated": run.calibrated,
        "windows_per_second": statistics.median(rates),
        "epochs": len(rates),
        "steps_of_epoch": run.steps_of_epoch,
        "worker_cpu_of_quota": of_workers / quota,
        "worker_cpu_ms_per_window": 1e3 * of_workers / windows,
        "ps_cpu_of_core": (
            sum(s for name, s in taken.items() if name.startswith("ps")) / (end - begin)
        ),
        "coordinator_cpu_of_core": taken["coordinator:0"] / (end - begin),
        "step_seconds_p50": result["throughput"]["step_seconds_p50"],
        "period_microseconds": run.period_microseconds,
    }


def runs_of(plan: Plan) -> list[Run]:
    """Return the runs of a round: of each mode one worker, and then all of them.

    Unequal ones run without calibration and with it.
    """
    runs = []
    for mode in plan.modes:
        one = plan.run(mode, pieces=1, least_share=plan.share)
        runs += [one, replace(one, shares=(plan.share,) * plan.workers)]
    for mode in plan.unequal_modes:
        shares = tuple(plan.share * part for part in UNEQUAL)
        one = plan.run(mode, pieces=4, least_share=min(shares))
        every = replace(one, shares=shares)
        runs += [one, every, replace(every, calibrated=True)]
    return runs


def summarize(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return medians by mode: `efficiency` of equal workers, `heterogeneous` of unequal ones."""

    def rate(mode: str, pieces: int, **wanted: Any) -> float | None:
        found = [
            row["windows_per_second"]
            for row in rows
            if row["mode"] == mode
            and _pieces(row) == pieces
            and all(row[key] == wanted[key] for key in wanted)
        ]
        if found:
            return float(statistics.median(found))
        return None

    def over(many: float | None, one: float | None, units: float) -> float | None:
        if many and one:
            return many / (units * one)
        return None

    equal = max((row["workers"] for row in rows if _pieces(row) == 1), default=1)
    return {
        "efficiency": {
            mode: over(rate(mode, 1, workers=equal), rate(mode, 1, workers=1), equal)
            for mode in MODES
        },
        "heterogeneous": {
            mode: {
                word: over(
                    rate(mode, 4, workers=len(UNEQUAL), calibrated=known),
                    rate(mode, 4, workers=1),
                    sum(UNEQUAL),
                )
                for word, known in (("uncalibrated", False), ("calibrated", True))
            }
            for mode in UNEQUAL_MODES
        },
    }


def _pieces(row: Mapping[str, Any]) -> int:
    """Micro-batches for every 100 windows."""
    return int(row["micro_batches"] // (row["workers"] if row["mode"] == "sync" else 1))


def _tell(row: dict[str, Any]) -> None:
    tell(
        f"{row['mode']}, {row['workers']} workers: {row['windows_per_second']:,.0f} windows/s,"
        f" workers took {row['worker_cpu_of_quota']:.0%} of their quota,"
        f" {row['worker_cpu_ms_per_window']:.3f} ms a window; server {row['ps_cpu_of_core']:.0%},"
        f" coordinator {row['coordinator_cpu_of_core']:.0%} of a core"
    )


def main() -> None:
    """Measure and print the object; status 1 with one line where no quota can be set."""
    parser = arguments(
        "scaling", "Windows per second of 8 CPU-limited workers over 8 times one of them."
    )
    parser.add_argument(
        "--share", type=float, help="of a core for each of the equal workers; default 0.2"
    )
    parser.add_argument(
        "--rounds", type=int, help="times that every run is made; default 3, quick 1"
    )
    given = parser.parse_args()
    problem = why_not()
    if problem:
        sys.exit(f"benchmarks.scaling: {problem}")
    plan = PLANS[given.size]
    plan = replace(plan, share=given.share or plan.share, rounds=given.rounds or plan.rounds)
    rows = []
    with tempfile.TemporaryDirectory(prefix="pscluster-benchmark-") as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        with local_cluster(plan.workers, servers=1) as cluster:
            for run in runs_of(plan) * plan.rounds:
                rows.append(measure(run, cluster))
                _tell(rows[-1])
    publish("scaling", rows, summarize(rows), given)


if __name__ == "__main__":
    main()
