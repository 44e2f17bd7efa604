"""Updates lost and updates doubled while faults are injected on purpose.

Two rows on a cluster that `fab` started (4 workers, 2 parameter servers, all kept by the supervisor). The first counts
each update at each shard by itself (`benchmarks.faults_counting`), under faults of workers, connections and deliveries.
The second is `fab job train` under those of parameter servers and coordinators too: what they take is lost with them,
and comes again from the last checkpoint; every update of the plan has to be in the history that survives, once.
"""

import json
import sys
from typing import Any

from benchmarks.report import arguments, publish
from benchmarks.supervised_cluster import SupervisedCluster, ended, supervised_cluster
from deploy.project import ROOT

WORKERS, SERVERS = 4, 2
FAULTS, QUICK_FAULTS = (1_000, 100), (100, 15)
"""How many at least, and how many of them to processes."""
DEADLINE_SECONDS = 3_600.0

CHAOS = "kill-worker:0.015,stop-worker:0.018,cut-worker:0.015,cut-ps:0.015,drop-reply:0.06,duplicate:0.12,late:0.08"
TRAIN_CHAOS = (
    "kill-worker:0.005,stop-worker:0.003,cut-ps:0.003,drop-reply:0.005,duplicate:0.03,late:0.005,"
    "kill-ps:0.002,kill-coordinator:0.002"
)
"""Fewer, because a job's own patience is that of the product: a worker that fails again and again waits up to 30 s."""
TRAIN = (
    "jobs.train.model={name: thesis, n_layers_in_highway: 0, n_stacked_layers: 1, bidirectional: false, hidden: 16}",
    "jobs.train.batch_size=20",
    "jobs.train.checkpoint.every_seconds=3",
    "jobs.train.deadline_seconds=20",
)
EPOCHS = 10


def counting(cluster: SupervisedCluster, faults: int, to_processes: int, seed: int) -> dict[str, Any]:
    """The row of `benchmarks.faults_counting`."""
    command = [sys.executable, "-m", "benchmarks.faults_counting", "--inventory", str(cluster.inventory)]
    command += ["--faults", str(faults), "--to-processes", str(to_processes), "--chaos", f"{CHAOS},seed:{seed}"]
    row: dict[str, Any] = json.loads(
        ended(command, ROOT, cluster.environment, DEADLINE_SECONDS).stdout.splitlines()[-1]
    )
    return row


def train_words(epochs: int, chaos: str) -> list[str]:
    """What to say to `fab` for a training that has to go on from checkpoints."""
    words = ["job", "train", "--data", "synthetic", "--mode", "async", "--epochs", str(epochs), "--chaos", chaos]
    for setting in TRAIN:
        words += ["--set", setting]
    return [*words, "--json", "--quiet"]


def row_of(result: dict[str, Any], chaos: str) -> dict[str, Any]:
    """What a training's result says about its faults."""
    injected, updates = result["chaos"]["injected"], result["updates"]
    return {
        "what": "fab job train",
        "workers": result["workers"],
        "ps": result["ps"],
        "chaos": chaos,
        "injected": injected,
        "to_processes": sum(count for fault, count in injected.items() if fault.startswith(("kill-", "stop-"))),
        "status": result["status"],
        "epochs_done": result["epochs_done"],
        "updates": updates["scheduled"],
        "lost": max(0, updates["scheduled"] - updates["applied"]),
        "doubled": max(0, updates["applied"] - updates["scheduled"]),
        "rolled_back": updates["rolled_back"],
        "resumptions": result["resumptions"],
        "duplicates_dropped": updates["duplicates_dropped"],
        "seconds": round(result["elapsed_seconds"], 1),
    }


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Sums over the rows; lost and doubled have to be 0."""
    injected: dict[str, int] = {}
    for row in rows:
        for fault, count in row["injected"].items():
            injected[fault] = injected.get(fault, 0) + count
    return {
        "injected": sum(injected.values()),
        "injected_by_fault": dict(sorted(injected.items())),
        **{key: sum(row[key] for row in rows) for key in ("to_processes", "updates", "lost", "doubled")},
        "rolled_back": sum(row.get("rolled_back", 0) for row in rows),
        "resumptions": sum(row.get("resumptions", 0) for row in rows),
    }


def main() -> None:
    """Measure and print the object; status 1 if an update was lost or doubled."""
    parser = arguments("faults", "Updates lost and doubled under injected faults.")
    parser.add_argument("--seed", type=int, default=0, help="which faults strike when")
    given = parser.parse_args()
    with supervised_cluster(WORKERS, SERVERS) as cluster:
        rows = [counting(cluster, *(QUICK_FAULTS if given.quick else FAULTS), given.seed)]
        _tell(rows[-1])
        if not given.quick:
            chaos = f"{TRAIN_CHAOS},seed:{given.seed}"
            trained = cluster.fab(train_words(EPOCHS, chaos), DEADLINE_SECONDS)
            rows.append(row_of(json.loads(trained.stdout), chaos))
            _tell(rows[-1])
    summary = summarize(rows)
    publish("faults", rows, summary, as_json=given.json)
    sys.exit(bool(summary["lost"] or summary["doubled"]))


def _tell(row: dict[str, Any]) -> None:
    """The whole row, too: it took minutes, and the next one may fail."""
    print(
        f"{row['what']}: {sum(row['injected'].values())} faults in {row['updates']} updates; {row['lost']} lost, "
        f"{row['doubled']} doubled ({row['seconds']} s)\n{json.dumps(row)}",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    main()
