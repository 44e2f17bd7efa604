"""CPU that a worker spends on a window, by the number of micro-batches: the shipped inventory beside one a core.

A worker of its own on this machine, `async`, three plain layers of 32 units, batches of 100: what `micro_batches: auto`
chooses, one a core, and 1, 4 and 16. The worker's CPU seconds are those of its process from before a training to after
it. Two lengths of training are subtracted, so that joining and loading a function count for neither. Variants take
turns in every round, and what is compared are the ratios within a round.
"""

import os
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.beds.local_cluster import LocalCluster, local_cluster
from benchmarks.report import arguments, publish
from cluster.metrics.processor import usable_cores

ROUNDS, QUICK_ROUNDS = 3, 1
EPOCHS, QUICK_EPOCHS = (1, 4), (1, 2)
FIXED = (1, 4, 16)
SHIPPED = "auto"
LIMIT = 1.15
"""The most that the shipped inventory may cost over one micro-batch a core."""


def cpu_seconds(pid: int) -> float:
    """User and system time of the process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(cluster: LocalCluster, micro_batches: str | int, epochs: tuple[int, int]) -> dict[str, Any]:
    """CPU milliseconds a window, and the number of micro-batches that was used."""
    (worker,) = (process for name, process in cluster.processes.items() if name.startswith("worker"))
    seconds, windows = [], []
    for count in epochs:
        before = cpu_seconds(worker.pid)
        result = cluster.job(
            "train",
            [
                "jobs.train.mode=async", "jobs.train.data.source=synthetic", "jobs.train.validation_subjects=0",
                f"jobs.train.epochs={count}", f"jobs.train.micro_batches={micro_batches}",
            ],
        )  # fmt: skip
        seconds.append(cpu_seconds(worker.pid) - before)
        windows.append(result["updates"]["applied"] * result["settings"]["batch_size"])
    return {
        "asked_for": str(micro_batches),
        "micro_batches": result["micro_batches"]["number"],
        "why": result["micro_batches"]["why"],
        "cpu_milliseconds_a_window": 1e3 * (seconds[1] - seconds[0]) / (windows[1] - windows[0]),
    }


def summarize(rows: list[dict[str, Any]], cores: int) -> dict[str, Any]:
    """Medians over the rounds, and each variant over one micro-batch a core within its round."""
    rounds: dict[int, dict[str, float]] = {}
    for row in rows:
        rounds.setdefault(row["round"], {})[row["asked_for"]] = row["cpu_milliseconds_a_window"]
    variants = dict.fromkeys(row["asked_for"] for row in rows)
    over = {name: statistics.median(costs[name] / costs[str(cores)] for costs in rounds.values()) for name in variants}
    return {
        "cores": cores,
        "cpu_milliseconds_a_window": {
            name: round(statistics.median(costs[name] for costs in rounds.values()), 3) for name in variants
        },
        "over_one_a_core": {name: round(ratio, 3) for name, ratio in over.items()},
        "shipped_over_one_a_core": round(over[SHIPPED], 3),
        "limit": LIMIT,
    }


def main() -> int:
    """Measure and print the object; status 1 if the shipped inventory costs more than it may."""
    parser = arguments("micro_batches", "CPU of a worker a window, by the number of micro-batches.")
    parser.add_argument("--rounds", type=int, help=f"default {ROUNDS}, with --quick {QUICK_ROUNDS}")
    given = parser.parse_args()
    cores = usable_cores()
    variants: list[str | int] = [SHIPPED, *sorted({cores, *FIXED})]
    rows = []
    with local_cluster(workers=1) as cluster:
        for turn in range(given.rounds or (QUICK_ROUNDS if given.quick else ROUNDS)):
            for variant in variants:
                row = {"round": turn, **measure(cluster, variant, QUICK_EPOCHS if given.quick else EPOCHS)}
                rows.append(row)
                print(
                    f"{variant} ({row['micro_batches']}): {row['cpu_milliseconds_a_window']:.3f} ms a window",
                    file=sys.stderr, flush=True,
                )  # fmt: skip
    summary = summarize(rows, cores)
    publish("micro_batches", rows, summary, as_json=given.json)
    return int(summary["shipped_over_one_a_core"] > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
