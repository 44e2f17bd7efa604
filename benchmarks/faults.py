"""Updates lost and updates doubled while faults are injected on purpose.

On a cluster that `fab` started (4 workers, 2 with `--quick`, and 2 parameter servers, all kept by
the supervisor). The first rows count each update at each shard by itself, in every codec
(`benchmarks.coordinators.faults`), under faults of workers, connections and deliveries. Then comes
`fab job train` in every mode with every codec it takes, under those of parameter servers and
coordinators too: what they take is lost with them, and comes again from the last checkpoint; every
update of the plan has to be in the history that survives, once. `single` has no cluster to strike,
so that it is no row.
"""

import json
import sys
from typing import Any

from benchmarks.beds.supervised_cluster import SupervisedCluster, ended, supervised_cluster
from benchmarks.report import arguments, publish, tell
from core.inventory.extensions import CODECS as FACTS
from deploy.common.project import ROOT

WORKERS = {"full": 4, "quick": 2, "smoke": 2}
FAULTS = {"full": (400, 40), "quick": (20, 2), "smoke": (6, 1)}
"""How many at least in each codec, and how many of them to processes."""
DEADLINE_SECONDS = 3_600.0

CHAOS = (
    "kill-worker:0.015,stop-worker:0.018,cut-worker:0.015,cut-ps:0.015,"
    "drop-reply:0.06,duplicate:0.12,late:0.08"
)
KEEPING = "cut-worker:0.015,cut-ps:0.015,drop-reply:0.06,duplicate:0.12,late:0.08"
"""For workers that keep a part of the gradients: a killed one takes that part with it, which is
lost by design."""

COUNTED = {
    "fp32": CHAOS,
    "fp16": CHAOS,
    "int8": CHAOS,
    "int4": CHAOS,
    "onebit": KEEPING,
    "topk": CHAOS,
    "residual": KEEPING,
}
MODES = {
    "full": ("async", "ssp", "local", "sync", "allreduce"),
    "quick": ("async", "sync"),
    "smoke": ("async",),
}
STEPS = ("sync", "allreduce")
"""Modes in which no worker may keep anything."""
CODECS = {"full": tuple(FACTS), "quick": ("fp32",), "smoke": ("topk",)}
TRAIN_CHAOS = (
    "kill-worker:0.005,stop-worker:0.003,cut-ps:0.003,drop-reply:0.005,duplicate:0.03,late:0.005,"
    "kill-ps:0.002,kill-coordinator:0.002"
)
"""Fewer, because a job's own patience is that of the product: a worker that fails again and again
waits up to 30 s."""
ALLREDUCE_CHAOS = (
    "kill-worker:0.001,stop-worker:0.0005,cut-worker:0.0005,duplicate:0.03,kill-coordinator:0.001"
)
"""A worker holds a part of the parameters, so each fault of one restarts the job. Only an
evaluation's calls double."""
TRAIN = (
    (
        "jobs.train.model={name: thesis, n_layers_in_highway: 0, n_stacked_layers: 1,"
        " bidirectional: false, hidden: 16}"
    ),
    "jobs.train.batch_size=20",
    "jobs.train.checkpoint.every_seconds=3",
    "jobs.train.deadline_seconds=20",
)
EPOCHS = {"full": 6, "quick": 1, "smoke": 1}


def counting(
    cluster: SupervisedCluster, faults: int, to_processes: int, seed: int, codec: str
) -> dict[str, Any]:
    """A row of `benchmarks.coordinators.faults`."""
    chaos = COUNTED[codec]
    if "kill-worker" not in chaos:
        to_processes = 0
    command = [sys.executable, "-m", "benchmarks.coordinators.faults"]
    command += [f"--inventory={cluster.inventory}", f"--faults={faults}", f"--codec={codec}"]
    command += [f"--to-processes={to_processes}", f"--chaos={chaos},seed:{seed}"]
    row: dict[str, Any] = json.loads(
        ended(command, ROOT, cluster.environment, DEADLINE_SECONDS).stdout.splitlines()[-1]
    )
    return row


def train_words(epochs: int, chaos: str, mode: str = "async", codec: str = "fp32") -> list[str]:
    """What to say to `fab` for a training that has to resume from checkpoints."""
    words = ["job", "train", "--data=synthetic", f"--mode={mode}", f"--epochs={epochs}"]
    settings = (*TRAIN, f"jobs.train.codec={{name: {codec}}}")
    words += [f"--set={setting}" for setting in settings]
    return [*words, f"--chaos={chaos}", "--json", "--quiet"]


def row_of(result: dict[str, Any], chaos: str) -> dict[str, Any]:
    """What a training's result says about its faults."""
    injected = result["chaos"]["injected"]
    updates = result["updates"]
    return {
        "what": f"fab job train, {result['mode']}, {result['settings']['codec']['name']}",
        "mode": result["mode"],
        "codec": result["settings"]["codec"]["name"],
        "workers": result["workers"],
        "ps": result["ps"],
        "chaos": chaos,
        "injected": injected,
        "to_processes": sum(
            count for fault, count in injected.items() if fault.startswith(("kill-", "stop-"))
        ),
        "status": result["status"],
        "epochs_done": result["epochs_done"],
        "updates": updates["scheduled"],
        "lost": max(0, updates["scheduled"] - updates["applied"]),
        "doubled": max(0, updates["applied"] - updates["scheduled"]),
        "rolled_back": updates["rolled_back"],
        "resumptions": result["resumptions"],
        "duplicates_dropped": updates["duplicates_dropped"],
        "memories_lost": updates["memories_lost"],
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
        **{
            key: sum(row[key] for row in rows)
            for key in ("to_processes", "updates", "lost", "doubled")
        },
        "rolled_back": sum(row.get("rolled_back", 0) for row in rows),
        "resumptions": sum(row.get("resumptions", 0) for row in rows),
    }


def main() -> None:
    """Measure and print the object; status 1 if an update was lost or doubled."""
    parser = arguments(
        "faults", "Updates lost and doubled under injected faults, in every mode and codec."
    )
    parser.add_argument("--seed", type=int, default=0, help="which faults strike when")
    parser.add_argument(
        "--modes", nargs="*", choices=MODES["full"], help="default all; with --quick async and sync"
    )
    parser.add_argument(
        "--codecs", nargs="*", choices=CODECS["full"], help="default all; with --quick fp32"
    )
    parser.add_argument("--epochs", type=int, help="of each training; default 6, with --quick 1")
    given = parser.parse_args()
    epochs = given.epochs or EPOCHS[given.size]
    modes = given.modes or MODES[given.size]
    codecs = given.codecs or CODECS[given.size]
    rows = []
    with supervised_cluster(WORKERS[given.size], servers=2) as cluster:
        counted = [
            name for name in COUNTED if name in codecs or (name == "residual" and "topk" in codecs)
        ]
        for codec in counted:
            rows.append(counting(cluster, *FAULTS[given.size], given.seed, codec))
            _tell(rows[-1])
        for mode in modes:
            chaos = f"{ALLREDUCE_CHAOS if mode == 'allreduce' else TRAIN_CHAOS},seed:{given.seed}"
            for codec in codecs:
                if FACTS[codec].keeps_back and mode in STEPS:
                    continue
                trained = cluster.fab(train_words(epochs, chaos, mode, codec), DEADLINE_SECONDS)
                rows.append(row_of(json.loads(trained.stdout), chaos))
                _tell(rows[-1])
    summary = summarize(rows)
    publish("faults", rows, summary, given)
    sys.exit(bool(summary["lost"] or summary["doubled"]))


def _tell(row: dict[str, Any]) -> None:
    """The whole row, too: it took minutes, and the next one may fail."""
    tell(
        f"{row['what']}: {sum(row['injected'].values())} faults in {row['updates']} updates;"
        f" {row['lost']} lost, {row['doubled']} doubled ({row['seconds']} s)\n{json.dumps(row)}"
    )


if __name__ == "__main__":
    main()
