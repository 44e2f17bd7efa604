"""CPU that the coordinator spends on an update: in a training in `async`, and in a bare call.

The training: three plain layers of 32 units, batches of 100 in one micro-batch, synthetic
recordings, two workers and a parameter server on this machine. Counted are all threads of the
coordinator's process, from an update after the warm-up to the last one: no tracing and no
evaluation, but metrics, status and the live page, as a user has them. The bare call carries what an
update carries, through the dispatcher alone (`experiments.coordinators.leak`).
"""

import json
import os
import statistics
import sys
from typing import Any

from benchmarks.beds.local_cluster import LocalCluster, local_cluster
from benchmarks.report import arguments, publish
from experiments.coordinators.dispatch import SPENT_FILE

ROUNDS = 3
QUICK_ROUNDS = 1
EPOCHS = 40
CALLS = 4_000
DEADLINE_SECONDS = 200.0
LIMIT_MS = 1.5
TRAINING = "async training"
BARE = "bare call"
MODEL = (
    "{name: thesis, n_layers_in_highway: 0, n_stacked_layers: 3, bidirectional: false, hidden: 32}"
)
SETTINGS = (
    "mode=async",
    "data.source=synthetic",
    "validation_subjects=0",
    "refit=false",
    "slots=1",
    "batch_size=100",
    f"epochs={EPOCHS}",
    f"model={MODEL}",
)


def training(cluster: LocalCluster) -> dict[str, Any]:
    """One training; what its coordinator spent on an update."""
    spent = cluster.folder / "spent.json"
    spent.unlink(missing_ok=True)
    os.environ[SPENT_FILE] = str(spent)
    flags = ["--json", "--quiet", "--set", f"runs={cluster.folder / 'runs'}"]
    for setting in SETTINGS:
        flags += ["--set", f"jobs.train.{setting}"]
    result = cluster.coordinate(
        "experiments.coordinators.dispatch", ["train"], flags, deadline_seconds=DEADLINE_SECONDS
    )
    counted = result["updates"]
    assert counted["applied"] == counted["scheduled"], counted
    found: dict[str, Any] = json.loads(spent.read_text())
    return found


def bare(cluster: LocalCluster) -> dict[str, Any]:
    """Calls to one worker."""
    flags = ["--calls", str(CALLS), "--worker", str(cluster.processes["worker:0"].pid)]
    found = cluster.coordinate(
        "experiments.coordinators.leak", ["ours"], flags, deadline_seconds=DEADLINE_SECONDS
    )
    return {
        "updates": CALLS,
        "updates_per_second": found["calls_per_second"],
        "cpu_ms_an_update": found["coordinator_cpu_ms_a_call"],
    }


def measure(rounds: int) -> list[dict[str, Any]]:
    """A row for each round of each."""
    rows: list[dict[str, Any]] = []
    with local_cluster(workers=2, servers=1) as cluster:
        for turn in range(rounds):
            for what, measured in ((TRAINING, training), (BARE, bare)):
                rows.append({"what": what, "round": turn, **measured(cluster)})
                print(_line(rows[-1]), file=sys.stderr, flush=True)
    return rows


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the rounds, beside the limit."""

    def median(what: str, key: str) -> float:
        return round(float(statistics.median(row[key] for row in rows if row["what"] == what)), 3)

    return {
        "cpu_ms_an_update": median(TRAINING, "cpu_ms_an_update"),
        "cpu_ms_a_bare_call": median(BARE, "cpu_ms_an_update"),
        "updates_per_second": median(TRAINING, "updates_per_second"),
        "limit_ms": LIMIT_MS,
    }


def main() -> int:
    """Measure and print the object; status 1 if an update costs more than it may."""
    given = arguments("dispatch", "The coordinator's CPU a dispatched update.").parse_args()
    rows = measure(QUICK_ROUNDS if given.quick else ROUNDS)
    summary = summarize(rows)
    publish("dispatch", rows, summary, as_json=given.json)
    return int(summary["cpu_ms_an_update"] > LIMIT_MS)


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['what']}, round {row['round']}: {row['cpu_ms_an_update']:.2f} ms of the"
        f" coordinator's CPU an update, {row['updates_per_second']:.0f} updates/s"
    )


if __name__ == "__main__":
    sys.exit(main())
