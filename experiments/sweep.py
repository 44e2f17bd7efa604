"""A sweep of small runs on several slow workers, over as many times the same on one of them.

Each worker is a cgroup (v1, cpu) with the same share of a core, into which each run's process is
put as it begins; so four workers have four times the processor of one. Both sweeps are driven as
`fab sweep` drives them. A round measures one worker and all of them, one after the other; the
summary has the medians over the rounds. It needs root.

The efficiency of a round is the runs an hour of all workers over so many times those of one. It has
what the driver costs, and what the workers and other programs take from each other in caches and
memory. The groups go before other programs, and take a fraction of the machine, so that they have
their share on a busy one too. `busy` is the share of the workers' time in which they had a run, and
so the driver's alone.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.beds.cpu_quota import enter, processes_in, slow_places, why_not
from benchmarks.report import arguments, publish
from core.inventory.templates import local_inventory

SWEEP = """
name: benchmark
base:
  jobs.train.data.source: synthetic
  jobs.train.model.n_stacked_layers: 1
  jobs.train.model.hidden: 8
  jobs.train.epochs: {epochs}
  jobs.train.slots: 1
runs: [{{}}]
seeds: {seeds}
"""
LOOK_SECONDS = 0.02
ROUNDS = 3
QUICK_ROUNDS = 1


def children(pid: int) -> list[int]:
    """Processes that this one has started and that live."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def keep_slow(
    driver: int, groups: Sequence[Path], end: threading.Event, begun: dict[int, float]
) -> None:
    """Put each run that the driver starts into a group that is free, until the end.

    When each begun, by its pid.
    """
    while not end.wait(LOOK_SECONDS):
        for run in children(driver):
            if run not in begun:
                begun[run] = time.time()
                enter(min(groups, key=lambda group: len(processes_in(group))), run)


def sweep(workers: int, runs: int, share: float, epochs: int, folder: Path) -> dict[str, Any]:
    """One sweep of so many runs; what it took."""
    made = folder / f"{workers}-{runs}-{time.monotonic_ns()}"
    made.mkdir()
    (made / "inventory.yaml").write_text(local_inventory(workers, 1) + "page: {listen: 'off'}\n")
    (made / "sweep.yaml").write_text(SWEEP.format(epochs=epochs, seeds=list(range(runs))))
    words = [
        sys.executable,
        "-m",
        "cluster",
        "sweep",
        "--inventory",
        "inventory.yaml",
        "--sweep",
        "sweep.yaml",
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    end = threading.Event()
    begun = dict[int, float]()
    with slow_places(workers, share) as groups:
        process = subprocess.Popen(
            [*words, "--quiet"], cwd=made, env=environment, stdout=subprocess.DEVNULL
        )
        looking = threading.Thread(target=keep_slow, args=(process.pid, groups, end, begun))
        looking.start()
        try:
            code = process.wait()
        finally:
            process.kill()
            process.wait()
            end.set()
            looking.join()
    if code:
        raise RuntimeError(f"the sweep on {workers} workers ended with status {code}")
    (record,) = made.glob("runs/*-sweep/sweep.json")
    found = json.loads(record.read_text())["runs"]
    seconds = record.stat().st_mtime - min(begun.values())
    return {
        "workers": workers,
        "runs": runs,
        "seconds": round(seconds, 2),
        "runs_per_hour": round(3600 * runs / seconds, 1),
        "busy": round(sum(run["seconds"] for run in found) / workers / seconds, 3),
        "run_seconds_median": round(statistics.median(run["seconds"] for run in found), 2),
        "load_average": round(os.getloadavg()[0], 1),
    }


def summarize(rows: Sequence[dict[str, Any]], workers: int) -> dict[str, Any]:
    """Medians of runs an hour, and of the efficiency of each round.

    All workers over so many times one.
    """
    one, all_of_them = (
        [row["runs_per_hour"] for row in rows if row["workers"] == count] for count in (1, workers)
    )
    busy = statistics.median(row["busy"] for row in rows if row["workers"] == workers)
    of_rounds = [many / workers / alone for alone, many in zip(one, all_of_them, strict=True)]
    return {
        "runs_per_hour": {
            "1": statistics.median(one),
            str(workers): statistics.median(all_of_them),
        },
        "busy": busy,
        "efficiency": round(statistics.median(of_rounds), 3),
        "efficiency_of_rounds": [round(one, 3) for one in of_rounds],
    }


def main() -> int:
    """Measure, and print the JSON object."""
    flags = arguments("sweep", (__doc__ or "").splitlines()[0])
    flags.add_argument("--workers", type=int, default=4)
    flags.add_argument("--runs", type=int, default=16, help="on all workers")
    flags.add_argument(
        "--alone", type=int, help="runs on one worker; as many unless said otherwise"
    )
    flags.add_argument("--share", type=float, default=0.2, help="of a core, for each worker")
    flags.add_argument("--epochs", type=int, default=2)
    flags.add_argument("--rounds", type=int, help=f"default {ROUNDS}, with --quick {QUICK_ROUNDS}")
    given = flags.parse_args()
    reason = why_not()
    if reason:
        flags.error(reason)
    rounds = given.rounds or (QUICK_ROUNDS if given.quick else ROUNDS)
    if given.quick:
        runs = given.workers
    else:
        runs = given.runs
    alone = given.alone or runs
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="pscluster-benchmark-") as made:
        for turn in range(rounds):
            for workers, count in ((1, alone), (given.workers, runs)):
                rows.append(
                    {"round": turn, **sweep(workers, count, given.share, given.epochs, Path(made))}
                )
                row = rows[-1]
                print(
                    f"{workers} workers: {row['runs']} runs in {row['seconds']:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
    summary = {
        "share": given.share,
        "rounds": rounds,
        "runs": runs,
        **summarize(rows, given.workers),
    }
    publish("sweep", rows, summary, as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
