"""A training, or pi, over emulated Pis: 1, 2, 4, 8 and 16 workers of the shipped inventory in the lab (docs/lab.md).

Every node has 10 % of a core, about a Pi 3, and a link of 300 Mbit/s. rpi11 carries the storage, the parameter server
and the coordinator, and as the sixteenth worker a worker too; it has what `--head` says, because a coordinator imports
Python's TensorFlow. The nodes are deployed once; each count is a training of its own on the first workers of the
inventory, and its figure the median over the epochs after the first. With `--job pi` it is a job of 1,000 million
points, and its figures are the seconds from the first chunk to 10, 20 ... 100 million, each beside the cell of the
thesis's Table 5, and to 1,000 million, which that table does not have.

Needs root and what the lab needs; `--seed KEY` names an environment kept by `python -m tests.lab seed`.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.report import arguments, publish
from cluster.pages.thesis_figures import pi_seconds
from cluster.status.history import read_run

ROOT = Path(__file__).parent.parent
COUNTS = (1, 2, 4, 8, 16)
QUICK_COUNTS = (1, 2)
HEAD = "rpi11"
QUOTA_PERCENT = 10
DEADLINE_SECONDS = 1800.0
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
        {**node, "roles": [role for role in node["roles"] if role != "worker" or node["name"] in kept]}
        for node in inventory["nodes"]
    ]
    return {**inventory, "nodes": [node for node in nodes if node["roles"]]}


def train(path: Path, settings: Sequence[str], runs: Path, folder: Path) -> list[float]:
    """Windows per second of each epoch of one training."""
    before = set(runs.glob("*-train"))
    words = [word for setting in settings for word in ("--set", setting)]
    fab("job", "train", "--inventory", str(path), "--quiet", *words, folder=folder)
    (made,) = set(runs.glob("*-train")) - before
    events = [json.loads(line) for line in (made / "events.jsonl").read_text().splitlines()]
    return [event["windows_per_second"] for event in events if event.get("stage") == "train" and "epoch" in event]


def draw_points(path: Path, settings: Sequence[str], runs: Path, folder: Path) -> dict[str, float]:
    """Seconds to so many million points, as the run's history has them, to the 2 % in which it is kept."""
    before = set(runs.glob("*-pi"))
    words = [word for setting in settings for word in ("--set", setting)]
    fab("job", "pi", "--samples", str(POINTS), "--inventory", str(path), "--quiet", *words, folder=folder)
    (made,) = set(runs.glob("*-pi")) - before
    view = read_run(made)
    points = view.pi.points if view.pi else ()
    return {
        str(millions): round(next(point.seconds for point in points if point.samples >= millions * 10**6), 1)
        for millions in MILLIONS
    }


def main() -> int:
    """Measure, and print the JSON object."""
    flags = arguments("pis", (__doc__ or "").splitlines()[0])
    flags.add_argument("--seed", metavar="KEY", help="environment that the nodes find on their cards")
    flags.add_argument("--head", type=float, default=30.0, help=f"percent of a core for {HEAD}")
    flags.add_argument("--epochs", type=int, default=3)
    flags.add_argument("--mode", default="async")
    flags.add_argument("--job", choices=("train", "pi"), default="train")
    flags.add_argument("--keep", type=Path, metavar="FOLDER", help="copy the runs' folders there, for `fab report`")
    parsed = flags.parse_args()
    counts = QUICK_COUNTS if parsed.quick else COUNTS
    shipped = yaml.safe_load((ROOT / "inventory.yaml").read_text())
    rows: list[dict[str, Any]] = []
    names = [node["name"] for node in shipped["nodes"]]
    with tempfile.TemporaryDirectory(prefix="pscluster-benchmark-") as made:
        folder = Path(made)
        try:
            seeds = ["--seed", f"{parsed.seed}:{','.join(names)}"] if parsed.seed else []
            key = Path(lab("up", str(len(names)), *seeds).split()[-2]).with_name("id_ed25519")
            settings = [
                f"ssh.key={key}",
                f"jobs.train.epochs={parsed.epochs}",
                f"jobs.train.mode={parsed.mode}",
            ]
            full = folder / "inventory.yaml"
            full.write_text(yaml.safe_dump(shipped, sort_keys=False))
            login = ["--set", settings[0]]
            fab("deploy", "trust", "--yes", "--inventory", str(full), *login, folder=folder)
            fab("deploy", "start", "--no-jobs", "--inventory", str(full), *login, folder=folder)
            lab("quota", str(QUOTA_PERCENT))
            lab("quota", f"{parsed.head:g}", HEAD)
            for count in counts:
                path = folder / "inventory.yaml"
                path.write_text(yaml.safe_dump(cut(shipped, count), sort_keys=False))
                if parsed.job == "pi":
                    seconds = draw_points(path, settings, folder / "runs", folder)
                    load = round(os.getloadavg()[0], 1)
                    theirs = {str(number): pi_seconds(number * 1_000_000, count) for number in MILLIONS[:-1]}
                    rows.append(
                        {
                            "workers": count,
                            "seconds_to_million_points": seconds,
                            "thesis_seconds": theirs,
                            "load_average": load,
                        }
                    )
                    print(f"{count} workers: {seconds['1000']:.0f} s", file=sys.stderr, flush=True)
                    continue
                epochs = train(path, settings, folder / "runs", folder)
                rate = statistics.median(epochs[1:] or epochs)
                rows.append(
                    {
                        "workers": count,
                        "windows_per_second": round(rate, 1),
                        "epochs": [round(one, 1) for one in epochs],
                        "efficiency": round(rate / count / (rows[0]["windows_per_second"] if rows else rate), 3),
                        "load_average": round(os.getloadavg()[0], 1),
                    }
                )
                print(f"{count} workers: {rate:.1f} windows/s", file=sys.stderr, flush=True)
        finally:
            if parsed.keep and (folder / "runs").is_dir():
                shutil.copytree(folder / "runs", parsed.keep, dirs_exist_ok=True)
            lab("down")
    if parsed.job == "pi":
        taken = {str(row["workers"]): row["seconds_to_million_points"]["1000"] for row in rows}
        facts = {"quota_percent": QUOTA_PERCENT, "head_percent": parsed.head, "seconds_to_1000_million": taken}
        publish("pis-pi", rows, facts, as_json=parsed.json)
        return 0
    summary = {
        "mode": parsed.mode,
        "quota_percent": QUOTA_PERCENT,
        "head_percent": parsed.head,
        "windows_per_second": {str(row["workers"]): row["windows_per_second"] for row in rows},
        "efficiency": {str(row["workers"]): row["efficiency"] for row in rows},
    }
    publish("pis", rows, summary, as_json=parsed.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
