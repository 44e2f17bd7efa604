"""Bytes that a worker grows by a call, and the coordinator's CPU a call.

Our lanes beside a stock ClusterCoordinator.

Both coordinators talk to the same lean role processes, one after the other in turn, and ask the one
worker for the same thing: pull a vector from the parameter server, push one of that size back,
answer with seven figures. The call carries what an update of `async` carries: an id, rows, a rate,
a seed, a standardization, an owner. A process of its own makes each contestant's calls
(`experiments.coordinators.leak`).
"""

import statistics
import sys
from typing import Any

from benchmarks.beds.local_cluster import local_cluster
from benchmarks.report import arguments, publish

CONTESTANTS = ("ours", "stock")
CALLS = 10_000
QUICK_CALLS = 2_000
ROUNDS = 3
QUICK_ROUNDS = 1
DEADLINE_SECONDS = 1_800.0


def measure(rounds: int, calls: int) -> list[dict[str, Any]]:
    """A row for each contestant and round, on one cluster of a parameter server and a worker."""
    rows: list[dict[str, Any]] = []
    with local_cluster(workers=1, servers=1) as cluster:
        for turn in range(rounds):
            for contestant in CONTESTANTS:
                flags = ["--calls", str(calls), "--worker", str(cluster.processes["worker:0"].pid)]
                found = cluster.coordinate(
                    "experiments.coordinators.leak",
                    [contestant],
                    flags,
                    deadline_seconds=DEADLINE_SECONDS,
                )
                rows.append({"contestant": contestant, "round": turn, "calls": calls, **found})
                print(_line(rows[-1]), file=sys.stderr, flush=True)
    return rows


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The median round of each contestant."""
    return {
        contestant: {
            key: statistics.median(row[key] for row in rows if row["contestant"] == contestant)
            for key in ("bytes_a_call", "coordinator_cpu_ms_a_call", "calls_per_second")
        }
        for contestant in CONTESTANTS
    }


def main() -> None:
    """Measure and print the object."""
    given = arguments(
        "leak", "Bytes a worker grows by a call, ours beside stock ClusterCoordinator."
    ).parse_args()
    if given.quick:
        rows = measure(QUICK_ROUNDS, QUICK_CALLS)
    else:
        rows = measure(ROUNDS, CALLS)
    publish("leak", rows, summarize(rows), as_json=given.json)


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['contestant']}, round {row['round']}: {row['bytes_a_call']:.0f} bytes a call,"
        f" {row['coordinator_cpu_ms_a_call']:.2f} ms of the coordinator's CPU,"
        f" {row['calls_per_second']:.0f} calls/s"
    )


if __name__ == "__main__":
    main()
