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
from benchmarks.beds.local_cluster import LocalCluster, local_cluster
from benchmarks.report import arguments, publish
from cluster.jobs.calibration import keep_calibration
from core.inventory import load

MODES = ("async", "local", "sync")
WORKERS = 8
SHARE = 0.2
UNEQUAL = (SHARE, SHARE, SHARE, SHARE / 4)
WINDOWS_OF_STEP = 100
MODEL = (
    "{name: thesis, n_layers_in_highway: 0, n_stacked_layers: 3, bidirectional: false, hidden: 32}"
)
STEPS = 128
CHANNELS = 9
CLASSES = 6
TEST_WINDOWS = 6
LOOK_SECONDS = 0.05
STEPS_OF_EPOCH = 40
EPOCHS = 5
QUICK_STEPS_OF_EPOCH = 10
QUICK_EPOCHS = 4
ROUNDS = 3
QUICK_ROUNDS = 1
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
            "model": MODEL,
            "batch_size": self.batch_size,
            "slots": micro_batches,
            "epochs": self.epochs,
            "validation_subjects": 0,
            "refit": "false",
        }
        return [f"jobs.train.{key}={value}" for key, value in values.items()]


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
        self, runs: Path, process_ids: Mapping[str, int], warm: Callable[[], None]
    ) -> None:
        """`warm` is called after the first epoch."""
        self.readings: list[tuple[float, dict[str, float]]] = []
        """Monotonic time and seconds by process after each epoch."""
        self._runs, self._process_ids, self._warm = runs, dict(process_ids), warm
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
            if not self.readings:
                self._warm()
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
    few = with_workers(cluster, len(run.shares))
    quotas = limited(dict(zip(workers, run.shares, strict=True)), run.period_microseconds)
    with ExitStack() as stack:
        clock = EpochClock(
            cluster.folder / "runs", {**named, **servers}, lambda: stack.enter_context(quotas)
        )
        try:
            result = few.job(
                "train", [*run.settings, f"jobs.train.data.source={source}"], clock.start
            )
        finally:
            events = clock.stop()
    return row_of(run, events, clock.readings, result)


def with_workers(cluster: LocalCluster, workers: int) -> LocalCluster:
    """The same roles through a file that names the first workers alone."""
    lines = cluster.inventory.path.read_text().splitlines(keepends=True)
    mine = [k for k, line in enumerate(lines) if "- worker:" in line]
    path = cluster.folder / f"inventory-{workers}.yaml"
    path.write_text("".join(line for k, line in enumerate(lines) if k not in mine[workers:]))
    return replace(cluster, inventory=load(path))


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


def runs_of(mode: str, steps_of_epoch: int, epochs: int, share: float = SHARE) -> tuple[Run, Run]:
    """One worker, and all of them, with this share of a core each."""
    one = Run(mode, (share,), steps_of_epoch, epochs, period_microseconds=period_of(share))
    return one, replace(one, shares=(share,) * WORKERS)


def unequal_runs(mode: str, steps_of_epoch: int, epochs: int) -> list[Run]:
    """Measure one worker, then three with a quarter of one, without calibration and with it."""
    one = Run(
        mode,
        (SHARE,),
        steps_of_epoch,
        epochs,
        pieces=4,
        period_microseconds=period_of(min(UNEQUAL)),
    )
    all_of_them = replace(one, shares=UNEQUAL)
    return [one, all_of_them, replace(all_of_them, calibrated=True)]


def quick_runs(share: float) -> list[Run]:
    """What `--quick` measures: equal workers alone, for fewer steps."""
    return [
        run for mode in MODES for run in runs_of(mode, QUICK_STEPS_OF_EPOCH, QUICK_EPOCHS, share)
    ]


def all_runs(share: float) -> list[Run]:
    """What a round consists of; `share` of a core is each equal worker's."""
    equal = [run for mode in MODES for run in runs_of(mode, STEPS_OF_EPOCH, EPOCHS, share)]
    return equal + [
        run for mode in ("async", "sync") for run in unequal_runs(mode, STEPS_OF_EPOCH, EPOCHS)
    ]


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

    units = sum(UNEQUAL) / SHARE
    return {
        "efficiency": {
            mode: over(rate(mode, 1, workers=WORKERS), rate(mode, 1, workers=1), WORKERS)
            for mode in MODES
        },
        "heterogeneous": {
            mode: {
                word: over(
                    rate(mode, 4, workers=len(UNEQUAL), calibrated=known),
                    rate(mode, 4, workers=1),
                    units,
                )
                for word, known in (("uncalibrated", False), ("calibrated", True))
            }
            for mode in ("async", "sync")
        },
    }


def _pieces(row: Mapping[str, Any]) -> int:
    """Micro-batches for every 100 windows."""
    return int(row["micro_batches"] // (row["workers"] if row["mode"] == "sync" else 1))


def measure_all(
    runs: Sequence[Run],
    rounds: int,
    report: Callable[[dict[str, Any]], None],
    cluster: LocalCluster,
) -> list[dict[str, Any]]:
    """Every run once a round, in turn."""
    rows = []
    for _ in range(rounds):
        for run in runs:
            rows.append(measure(run, cluster))
            report(rows[-1])
    return rows


def _tell(row: dict[str, Any]) -> None:
    print(
        f"{row['mode']}, {row['workers']} workers: {row['windows_per_second']:,.0f} windows/s,"
        f" workers took {row['worker_cpu_of_quota']:.0%} of their quota,"
        f" {row['worker_cpu_ms_per_window']:.3f} ms a window; server {row['ps_cpu_of_core']:.0%},"
        f" coordinator {row['coordinator_cpu_of_core']:.0%} of a core",
        file=sys.stderr,
        flush=True,
    )


def main() -> None:
    """Measure and print the object; status 1 with one line where no quota can be set."""
    parser = arguments(
        "scaling", "Windows per second of 8 CPU-limited workers over 8 times one of them."
    )
    parser.add_argument(
        "--share", type=float, default=SHARE, help="of a core for each of the equal workers"
    )
    parser.add_argument(
        "--rounds", type=int, help=f"times that every run is made; default {ROUNDS}, quick 1"
    )
    given = parser.parse_args()
    problem = why_not()
    if problem:
        print(f"benchmarks.scaling: {problem}", file=sys.stderr)
        sys.exit(1)
    rounds = given.rounds or (QUICK_ROUNDS if given.quick else ROUNDS)
    with tempfile.TemporaryDirectory(prefix="pscluster-benchmark-") as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        with local_cluster(WORKERS, servers=1) as cluster:
            if given.quick:
                runs = quick_runs(given.share)
            else:
                runs = all_runs(given.share)
            rows = measure_all(runs, rounds, _tell, cluster)
    publish("scaling", rows, summarize(rows), as_json=given.json)


if __name__ == "__main__":
    main()
