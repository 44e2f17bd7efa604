"""All modes beside each other.

`python -m experiments.modes` trains each with several seeds on the real recordings.

Accuracy after equal epochs (last epoch, test people, nothing chosen by anything), windows a second,
bytes a batch of windows. The seeds go round by round through all variants, so that what else the
machine does hits them alike.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.beds.local_cluster import local_cluster
from benchmarks.report import arguments, publish

EPOCHS = 20
QUICK_EPOCHS = 1
SEEDS = (0, 1, 2)
VARIANTS: dict[str, tuple[str, ...]] = {
    "single": ("jobs.train.mode=single",),
    "sync": ("jobs.train.mode=sync",),
    "sync fp16": ("jobs.train.mode=sync", "jobs.train.codec.name=fp16"),
    "allreduce": ("jobs.train.mode=allreduce",),
    "async": ("jobs.train.mode=async",),
    "async fp16": ("jobs.train.mode=async", "jobs.train.codec.name=fp16"),
    "async topk": (
        "jobs.train.mode=async",
        "jobs.train.codec={name: topk, density: 0.05, momentum: 0}",
    ),
    "ssp": ("jobs.train.mode=ssp",),
    "local": ("jobs.train.mode=local",),
    "local nesterov": ("jobs.train.mode=local", "jobs.train.local.outer_momentum=0.5"),
}
"""Settings of each row; what they leave out is the shipped recipe."""

MICRO_BATCHES = 4
"""The same in every row, as on a Pi: `auto` would cut `sync` and `single` differently, and give
them other bits."""


def main() -> None:
    """Train every variant with every seed and print the object."""
    parser = arguments("modes", "Accuracy, speed and bytes of every training mode.")
    parser.add_argument(
        "--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS), metavar="VARIANT"
    )
    parser.add_argument("--epochs", type=int, help=f"default {EPOCHS}, quick {QUICK_EPOCHS}")
    parser.add_argument("--seeds", type=int, nargs="+", help="default 0 1 2, quick 0")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ps", type=int, default=1)
    parser.add_argument(
        "--set", action="append", default=[], help="another key of the inventory (repeatable)"
    )
    given = parser.parse_args()
    epochs, seeds = plan(given)
    rows = []
    with local_cluster(given.workers, given.ps) as cluster:
        for seed in seeds:
            for variant in given.variants:
                settings = [
                    f"jobs.train.epochs={epochs}",
                    f"jobs.train.seed={seed}",
                    f"jobs.train.slots={MICRO_BATCHES}",
                    "jobs.train.validation_subjects=0",
                    *VARIANTS[variant],
                    *given.set,
                ]
                result = cluster.job("train", settings)
                rows.append(_row(variant, seed, result))
                print(
                    f"{variant}, seed {seed}: {rows[-1]['accuracy']:.4f}",
                    file=sys.stderr,
                    flush=True,
                )
    summary = {
        "epochs": epochs,
        "workers": given.workers,
        "ps": given.ps,
        "settings": given.set,
        "variants": {
            variant: _summary([row for row in rows if row["variant"] == variant])
            for variant in given.variants
        },
    }
    publish("modes", rows, summary, as_json=given.json)


def plan(given: argparse.Namespace) -> tuple[int, Sequence[int]]:
    """Epochs and seeds: quick has fewer of both; every variant has the same."""
    epochs, seeds = (QUICK_EPOCHS, SEEDS[:1]) if given.quick else (EPOCHS, SEEDS)
    return given.epochs or epochs, given.seeds or seeds


def _row(variant: str, seed: int, result: dict[str, Any]) -> dict[str, Any]:
    wire = result["wire"]
    batches = result["epochs_done"] * (result["dataset"]["train_windows"] // 100)
    updates = result["updates"]["scheduled"]
    moved = [wire["pull_bytes_per_step"], wire["push_bytes_per_step"]]
    return {
        "variant": variant,
        "seed": seed,
        "accuracy": result["final"]["accuracy"],
        "f1_macro": result["final"]["f1_macro"],
        "windows_per_second": result["throughput"]["windows_per_second"],
        "server_bytes_per_batch": None if None in moved else sum(moved) * updates / batches,
        "staleness": result["staleness"],
        "updates": result["updates"],
        "parameters_sha256": result["parameters_sha256"],
        "dataset": result["dataset"]["name"],
        "elapsed_seconds": result["elapsed_seconds"],
    }


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    accuracies = [row["accuracy"] for row in rows]
    moved = [
        row["server_bytes_per_batch"] for row in rows if row["server_bytes_per_batch"] is not None
    ]
    return {
        "mean_accuracy": statistics.fmean(accuracies),
        "spread": statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        "mean_f1_macro": statistics.fmean(row["f1_macro"] for row in rows),
        "windows_per_second": statistics.median(row["windows_per_second"] for row in rows),
        "server_bytes_per_batch": statistics.median(moved) if moved else None,
    }


if __name__ == "__main__":
    main()
