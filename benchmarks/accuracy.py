"""Test accuracy over several seeds, mean and spread.

`python -m benchmarks.accuracy --model residual --seeds 0 1 2`.

Every seed is a training run of its own on a cluster of real processes. With the default `--held-out
0` the recipe as shipped trains on all training subjects and nothing is chosen by anything; the test
set is looked at once, at the end. `--into FILE` keeps each seed as it comes and trains no seed
again that the file has, for machines that are short of time; an interrupted seed continues from its
checkpoint in `FILE.runs`. `--people` adds the accuracy of each test person.
"""

import argparse
import json
import shutil
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.beds.local_cluster import LocalCluster, local_cluster
from benchmarks.report import arguments, publish, tell
from cluster.jobs.run_folder import is_finished
from core.ground.files import atomic_write

FIGURES = ("accuracy", "f1_macro", "f1_weighted")
EPOCHS_AND_SEEDS = {"quick": (2, [0, 1]), "smoke": (1, [0, 1])}
SMOKE = ["jobs.train.data.source=synthetic", "jobs.train.model.hidden=8"]


def main() -> None:
    """Train with each seed and print the object."""
    given = _flags().parse_args()
    epochs, wanted = (given.epochs, given.seeds)
    if given.size != "full":
        epochs, wanted = EPOCHS_AND_SEEDS[given.size]
    if given.size == "smoke":
        given.set += SMOKE
    key = {
        "model": given.model,
        "settings": given.set,
        "epochs": epochs,
        "held_out": given.held_out,
    }
    rows = _kept(given.into, key)
    missing = [seed for seed in wanted if seed not in {row["seed"] for row in rows}]
    if missing:
        with local_cluster(given.workers, given.ps) as cluster:
            for seed in missing:
                _train(cluster, given, key, seed, rows)
    rows = [row for row in rows if row["seed"] in wanted]
    accuracies = [row["accuracy"] for row in rows]
    summary = {
        "model": given.model,
        "settings": given.set,
        "epochs": epochs,
        "mean_accuracy": statistics.fmean(accuracies),
        "spread": statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        "lowest_accuracy": min(accuracies),
        "highest_accuracy": max(accuracies),
        "mean_f1_macro": statistics.fmean(row["f1_macro"] for row in rows),
    }
    publish("accuracy", rows, summary, given)


def _flags() -> argparse.ArgumentParser:
    parser = arguments("accuracy", "Test accuracy over several seeds.")
    parser.add_argument("--model", default="thesis")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ps", type=int, default=1)
    parser.add_argument(
        "--held-out", type=int, default=0, help="validation subjects; with them the run is --refit"
    )
    parser.add_argument(
        "--into",
        type=Path,
        help="a JSON file that keeps every seed; those in it are not trained again",
    )
    parser.add_argument(
        "--people", action="store_true", help="the accuracy of each test person too"
    )
    parser.add_argument(
        "--set", action="append", default=[], help="another key of the inventory (repeatable)"
    )
    return parser


def _train(
    cluster: LocalCluster,
    given: argparse.Namespace,
    key: Mapping[str, Any],
    seed: int,
    rows: list[dict[str, Any]],
) -> None:
    """Train with one seed, add its row, and keep all rows in the file of `--into`."""
    settings = [
        f"jobs.train.model.name={given.model}",
        f"jobs.train.epochs={key['epochs']}",
        f"jobs.train.seed={seed}",
        f"jobs.train.validation_subjects={given.held_out}",
        f"jobs.train.refit={str(given.held_out > 0).lower()}",
        *given.set,
    ]
    kept = None
    if given.into is not None:
        kept = given.into.with_name(f"{given.into.name}.runs") / str(seed)
    row = _row(seed, given.workers, _trained(cluster, settings, kept), given.people)
    rows.append(row)
    bits = row["parameters_sha256"][:8]
    tell(f"seed {seed}: accuracy {row['accuracy']:.4f} on {row['dataset']}, parameters {bits}")
    if kept is not None:
        content = json.dumps({"key": key, "rows": rows}, indent=2)
        atomic_write(given.into, content.encode() + b"\n")
        shutil.rmtree(kept)


def _kept(path: Path | None, key: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of an earlier call with the same settings."""
    if path is None or not path.exists():
        return []
    content = json.loads(path.read_bytes())
    if content["key"] != key:
        raise SystemExit(
            f"{path}: expected seeds of {key}, got {content['key']}: name another file with --into"
        )
    return list(content["rows"])


def _trained(cluster: LocalCluster, settings: Sequence[str], kept: Path | None) -> dict[str, Any]:
    """The result of a training, which resumes from what an earlier call left in `kept`."""
    if kept is None:
        return cluster.job("train", settings)
    for path in kept.glob("*-train*/result.json"):
        if is_finished(path.parent):
            return {**json.loads(path.read_bytes()), "result_path": str(path)}
    flags = ["--json", "--quiet", *(f"--set={setting}" for setting in (*settings, f"runs={kept}"))]
    if any(kept.glob("*-train*/coordinator.log")):
        flags.append("--resume")
    return cluster.coordinate("cluster", ["train"], flags)


def _row(seed: int, workers: int, result: dict[str, Any], people: bool) -> dict[str, Any]:
    return {
        "seed": seed,
        "workers": workers,
        "mode": result["mode"],
        **{name: result["final"][name] for name in FIGURES},
        "validation_accuracy": result["selected"]["accuracy"],
        "parameters": result["model"]["parameters"],
        "parameters_sha256": result["parameters_sha256"],
        "arithmetic": result["arithmetic"]["name"],
        "windows_per_second": result["throughput"]["windows_per_second"],
        "staleness_mean": result["staleness"]["mean"],
        "updates": result["updates"],
        "confusion": result["confusion"],
        "dataset": result["dataset"]["name"],
        "elapsed_seconds": result["elapsed_seconds"],
        **(
            {"by_person": _by_person(Path(result["result_path"]).parent / "model")}
            if people
            else {}
        ),
    }


def _by_person(model: Path) -> dict[str, float]:
    from benchmarks.people import by_person, recordings  # loads TensorFlow

    dataset = recordings()
    return by_person(model, dataset, np.arange(dataset.train_windows, dataset.rows))


if __name__ == "__main__":
    main()
