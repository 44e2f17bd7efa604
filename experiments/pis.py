"""A training and pi over emulated Pis.

1, 2, 4, 8 and 16 workers of the shipped inventory in the lab (docs/lab.md).

Every node has 10 % of a core, about a Pi 3, and a link of 300 Mbit/s. rpi11 carries the storage,
the parameter server and the coordinator, and as the sixteenth worker a worker too; it has what
`--head` says, because a coordinator imports Python's TensorFlow. The nodes are deployed once. In
each round every count has a training of its own and a `pi` of 1,000 million points, on the first
workers of the inventory. A training's figure is the median over the epochs after the first. Those
of pi are points per second, and the seconds from the first chunk to 10, 20 ... 100 million, each
beside its cell of the thesis's Table 5, and to 1,000 million, which that table does not have. What
is published are medians over the rounds, and the speed over so many times that of the first count.

The whole table of both jobs takes about ten minutes a round (`--rounds`, 3 unless said otherwise)
and five to deploy; `--counts 1 8` or `--jobs train` measures a part of it. Quiet the machine:
sixteen nodes take 1.8 of its cores.

The thesis's Table 21 is `--jobs train --counts 16 --rounds 1 --hidden 32 64 128 256 --epochs 12`,
with `--set jobs.train.validation_subjects=0`: accuracy and seconds of each width. From 128 units on
the hub needs more memory than a node has: `--head-memory 4G`.

Needs root and what the lab needs; `--seed KEY` names an environment kept by `python -m tests.lab
seed`.
"""

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.report import arguments, publish
from cluster.pages.pi_times import pi_seconds
from core.status.events import EpochEnded
from core.status.history import read_events
from core.status.past_run import read_run

ROOT = Path(__file__).parent.parent
COUNTS = (1, 2, 4, 8, 16)
QUICK_COUNTS = (1, 2)
JOBS = ("train", "pi")
ROUNDS = 3
QUICK_ROUNDS = 1
HEAD = "rpi11"
QUOTA_PERCENT = 10
DEADLINE_SECONDS = 5400.0
POINTS = 1_000_000_000
MILLIONS = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 1000)
"""The rows of the thesis's Table 5, and the whole job."""


def lab(*words: str) -> str:
    """One verb of the lab's command line; what it prints."""
    command = [sys.executable, "-m", "tests.lab", *words]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def fab(*words: str, folder: Path) -> None:
    """One `fab` command; its output goes to stderr."""
    command = [str(Path(sys.executable).with_name("fab")), "-r", str(ROOT), *words]
    subprocess.run(command, cwd=folder, check=True, stdout=sys.stderr, timeout=DEADLINE_SECONDS)


def cut(inventory: dict[str, Any], count: int) -> dict[str, Any]:
    """The inventory with its first `count` workers, or all of it."""
    workers = [node["name"] for node in inventory["nodes"] if "worker" in node["roles"]]
    if count >= len(workers):
        return inventory
    kept = workers[:count]
    nodes = [
        {
            **node,
            "roles": [role for role in node["roles"] if role != "worker" or node["name"] in kept],
        }
        for node in inventory["nodes"]
    ]
    return {**inventory, "nodes": [node for node in nodes if node["roles"]]}


def train(path: Path, settings: Sequence[str], runs: Path, folder: Path) -> dict[str, Any]:
    """Return windows a second of each epoch of a training, its test accuracy and its seconds."""
    before = set(runs.glob("*-train"))
    words = [word for setting in settings for word in ("--set", setting)]
    fab("job", "train", "--inventory", str(path), "--quiet", *words, folder=folder)
    (made,) = set(runs.glob("*-train")) - before
    events = [event for _, event in read_events(made) if isinstance(event, EpochEnded)]
    result = json.loads((made / "result.json").read_text())
    epochs = [event.windows_per_second for event in events if event.stage == "train"]
    return {
        "per_second": statistics.median(epochs[1:] or epochs),
        "epochs": [round(one, 1) for one in epochs],
        "accuracy": result["final"]["accuracy"],
        "seconds": round(result["elapsed_seconds"], 1),
    }


def draw_points(path: Path, settings: Sequence[str], runs: Path, folder: Path) -> dict[str, float]:
    """Seconds to each number of million points, from the run's history, which is exact to 2 %."""
    before = set(runs.glob("*-pi"))
    words = [word for setting in settings for word in ("--set", setting)]
    fab(
        "job",
        "pi",
        "--samples",
        str(POINTS),
        "--inventory",
        str(path),
        "--quiet",
        *words,
        folder=folder,
    )
    (made,) = set(runs.glob("*-pi")) - before
    view = read_run(made)
    if view.pi:
        points = view.pi.points
    else:
        points = ()
    return {
        str(millions): round(
            next(point.seconds for point in points if point.samples >= millions * 10**6), 1
        )
        for millions in MILLIONS
    }


def measure(job: str, path: Path, settings: Sequence[str], folder: Path) -> dict[str, Any]:
    """One job on the inventory at `path`.

    Its speed, in windows or points a second, and what that comes from.
    """
    if job == "pi":
        seconds = draw_points(path, settings, folder / "runs", folder)
        found = {
            "per_second": POINTS / seconds[str(MILLIONS[-1])],
            "seconds_to_million_points": seconds,
        }
    else:
        found = train(path, settings, folder / "runs", folder)
    return {**found, "load_average": round(os.getloadavg()[0], 1)}


def summarize(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return by job the median speed of each count, and its share of that many first counts."""
    found: dict[str, Any] = {}
    named = [
        {**row, "job": f"{row['job']} h{row['hidden']}" if row.get("hidden") else row["job"]}
        for row in rows
    ]
    for job in dict.fromkeys(row["job"] for row in named):
        of_job = [row for row in named if row["job"] == job]
        counts = list(dict.fromkeys(row["workers"] for row in of_job))
        speeds = {
            n: statistics.median(row["per_second"] for row in of_job if row["workers"] == n)
            for n in counts
        }
        one = speeds[counts[0]] / counts[0]
        found[job] = {
            "per_second": {str(count): round(speed, 1) for count, speed in speeds.items()},
            "efficiency": {
                str(count): round(speed / count / one, 3) for count, speed in speeds.items()
            },
        }
        if job == "pi":
            found[job]["seconds_to_million_points"] = {
                str(count): {
                    millions: statistics.median(
                        row["seconds_to_million_points"][millions]
                        for row in of_job
                        if row["workers"] == count
                    )
                    for millions in map(str, MILLIONS)
                }
                for count in counts
            }
            found[job]["thesis_seconds"] = {
                str(count): {
                    str(number): pi_seconds(number * 1_000_000, count) for number in MILLIONS[:-1]
                }
                for count in counts
            }
    return found


def deployed(given: argparse.Namespace, shipped: dict[str, Any], folder: Path) -> list[str]:
    """Bring the nodes up, deploy on all of them, limit them; the settings that each job needs."""
    names = [node["name"] for node in shipped["nodes"]]
    if given.seed:
        seeds = ["--seed", f"{given.seed}:{','.join(names)}"]
    else:
        seeds = []
    key = Path(lab("up", str(len(names)), *seeds).split()[-2]).with_name("id_ed25519")
    full = folder / "inventory.yaml"
    full.write_text(yaml.safe_dump(shipped, sort_keys=False))
    login = ["--set", f"ssh.key={key}"]
    fab("deploy", "trust", "--yes", "--inventory", str(full), *login, folder=folder)
    fab("deploy", "start", "--no-jobs", "--inventory", str(full), *login, folder=folder)
    lab("quota", str(QUOTA_PERCENT))
    lab("quota", f"{given.head:g}", HEAD)
    if given.head_memory:
        lab("memory", HEAD, given.head_memory)
    return [
        f"ssh.key={key}",
        f"jobs.train.epochs={given.epochs}",
        f"jobs.train.mode={given.mode}",
        *given.set,
    ]


def _flags() -> argparse.ArgumentParser:
    flags = arguments("pis", (__doc__ or "").splitlines()[0])
    flags.add_argument(
        "--seed", metavar="KEY", help="environment that the nodes find on their cards"
    )
    flags.add_argument("--head", type=float, default=30.0, help=f"percent of a core for {HEAD}")
    flags.add_argument(
        "--head-memory",
        metavar="SIZE",
        help=f"of {HEAD}, such as 4G; 1 GiB as every node unless said",
    )
    flags.add_argument("--epochs", type=int, default=3)
    flags.add_argument("--mode", default="async")
    flags.add_argument(
        "--hidden",
        nargs="+",
        type=int,
        default=[None],
        metavar="UNITS",
        help="a training of each width",
    )
    flags.add_argument("--jobs", nargs="+", choices=JOBS, default=JOBS)
    flags.add_argument("--counts", nargs="+", type=int, metavar="WORKERS", help=f"default {COUNTS}")
    flags.add_argument("--rounds", type=int, help=f"default {ROUNDS}, with --quick {QUICK_ROUNDS}")
    flags.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="of the inventory (repeatable)",
    )
    flags.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="copy the runs' folders there, for `fab report`"
    )
    return flags


def main() -> int:
    """Measure, and print the JSON object."""
    given = _flags().parse_args()
    counts = given.counts or (QUICK_COUNTS if given.quick else COUNTS)
    rounds = given.rounds or (QUICK_ROUNDS if given.quick else ROUNDS)
    shipped = yaml.safe_load((ROOT / "inventory.yaml").read_text())
    rows: list[dict[str, Any]] = []
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pscluster-benchmark-") as made:
        folder = Path(made)
        try:
            settings = deployed(given, shipped, folder)
            jobs = [
                (job, hidden)
                for job in given.jobs
                for hidden in (given.hidden if job == "train" else [None])
            ]
            for turn, count, (job, hidden) in itertools.product(range(rounds), counts, jobs):
                path = folder / "inventory.yaml"
                path.write_text(yaml.safe_dump(cut(shipped, count), sort_keys=False))
                network = ["jobs.train.recipe=shipped"]
                if hidden:
                    network.append(f"jobs.train.model.hidden={hidden}")
                found = measure(job, path, [*settings, *network], folder)
                rows.append(
                    {"round": turn, "job": job, "workers": count, "hidden": hidden, **found}
                )
                speed = found["per_second"]
                unit = "points" if job == "pi" else "windows"
                print(f"{count} workers, {job}: {speed:,.1f} {unit}/s", file=sys.stderr, flush=True)
        finally:
            if given.keep and (folder / "runs").is_dir():
                shutil.copytree(folder / "runs", given.keep, dirs_exist_ok=True)
            lab("down")
    summary = {
        "mode": given.mode,
        "quota_percent": QUOTA_PERCENT,
        "head_percent": given.head,
        "head_memory": given.head_memory or "1G",
        "rounds": rounds,
        "minutes": round((time.monotonic() - begin) / 60, 1),
        **summarize(rows),
    }
    publish("pis", rows, summary, as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
