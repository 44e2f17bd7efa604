"""How long no update comes when many workers stop or die at once.

Half of 32 by default, with the shipped timing.

Lean role processes on this machine, two parameter servers; the updates pull and push 27,590 values.
Every other worker is sent SIGSTOP at the same moment, in the middle of the run, and continues 25 s
later. What is measured is the longest time from one update's outcome to the next one's meanwhile.
Every round is a cluster of its own, and each update that was scheduled has to be applied once.
`--workers 48 --struck 10 --kill` sends SIGKILL to ten of 48.
"""

import statistics
import sys
from typing import Any

from benchmarks.beds.local_cluster import local_cluster
from benchmarks.report import arguments, publish

ROUNDS = 3
QUICK_ROUNDS = 1
WORKERS = 32
QUICK_WORKERS = 8
SERVERS = 2
DEADLINE_SECONDS = 280.0
LIMIT_SECONDS = 8.0


def measure(workers: int, struck: int | None = None, *, kill: bool = False) -> dict[str, Any]:
    """One round, on a cluster of its own.

    Half of the workers, or `struck` of them, are stopped or killed.
    """
    with local_cluster(workers=workers, servers=SERVERS) as cluster:
        tasks = range(1, workers, 2)[:struck]
        pids = [str(cluster.processes[f"worker:{task}"].pid) for task in tasks]
        found = cluster.coordinate(
            "experiments.coordinators.stopped",
            [],
            ["--strike", *pids, *["--kill"] * kill],
            deadline_seconds=DEADLINE_SECONDS,
        )
    return {"workers": workers, "stopped": len(pids), **found}


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The median round, and the worst."""
    gaps = [row["longest_gap_seconds"] for row in rows]
    return {
        "workers": rows[0]["workers"],
        "stopped": rows[0]["stopped"],
        "longest_gap_seconds": round(statistics.median(gaps), 2),
        "longest_gap_of_any_round_seconds": round(max(gaps), 2),
        "limit_seconds": LIMIT_SECONDS,
    }


def main() -> int:
    """Measure and print the object; status 1 if the gap is longer than it may be."""
    parser = arguments(
        "stopped", "The longest gap without an update when half of the workers stop at once."
    )
    parser.add_argument(
        "--rounds",
        type=int,
        help=f"default {ROUNDS}, with --quick {QUICK_ROUNDS}, of 4 in 8 workers",
    )
    parser.add_argument(
        "--workers", type=int, help=f"default {WORKERS}, with --quick {QUICK_WORKERS}"
    )
    parser.add_argument("--struck", type=int, help="how many of them are stopped; default half")
    parser.add_argument(
        "--kill", action="store_true", help="kill these workers instead of stopping them"
    )
    given = parser.parse_args()
    workers = given.workers or (QUICK_WORKERS if given.quick else WORKERS)
    rows = []
    for turn in range(given.rounds or (QUICK_ROUNDS if given.quick else ROUNDS)):
        rows.append({"round": turn, **measure(workers, given.struck, kill=given.kill)})
        print(
            f"round {turn}: {rows[-1]['stopped']} of {rows[-1]['workers']} struck, longest gap "
            f"{rows[-1]['longest_gap_seconds']:.1f} s",
            file=sys.stderr,
            flush=True,
        )
    summary = summarize(rows)
    publish("stopped", rows, summary, as_json=given.json)
    return int(summary["longest_gap_seconds"] > LIMIT_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
