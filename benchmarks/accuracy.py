"""Test accuracy over several seeds, mean and spread: `python -m benchmarks.accuracy --model residual --seeds 0 1 2`.

Every seed is a training run of its own on a cluster of real processes. With the default `--held-out 0` the recipe as
shipped trains on all training subjects and nothing is chosen by anything; the test set is looked at once, at the end.
"""

import statistics
import sys

from benchmarks.beds.local_cluster import local_cluster
from benchmarks.report import arguments, publish

FIGURES = ("accuracy", "f1_macro", "f1_weighted")
MICRO_BATCHES = 4
"""As on a Pi, whatever this machine has: `--set` may say otherwise."""


def main() -> None:
    """Train with each seed and print the object."""
    parser = arguments("accuracy", "Test accuracy over several seeds.")
    parser.add_argument("--model", default="thesis")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ps", type=int, default=1)
    parser.add_argument("--held-out", type=int, default=0, help="validation subjects; with them the run is --refit")
    parser.add_argument("--set", action="append", default=[], help="another key of the inventory (repeatable)")
    given = parser.parse_args()
    epochs = 2 if given.quick else given.epochs
    rows = []
    with local_cluster(given.workers, given.ps) as cluster:
        for seed in given.seeds[:1] if given.quick else given.seeds:
            settings = [
                f"jobs.train.model.name={given.model}",
                f"jobs.train.epochs={epochs}",
                f"jobs.train.seed={seed}",
                f"jobs.train.micro_batches={MICRO_BATCHES}",
                f"jobs.train.validation_subjects={given.held_out}",
                f"jobs.train.refit={str(given.held_out > 0).lower()}",
                *given.set,
            ]
            result = cluster.job("train", settings)
            rows.append(
                {
                    "seed": seed,
                    **{name: result["final"][name] for name in FIGURES},
                    "validation_accuracy": result["selected"]["accuracy"],
                    "parameters": result["model"]["parameters"],
                    "windows_per_second": result["throughput"]["windows_per_second"],
                    "staleness_mean": result["staleness"]["mean"],
                    "updates": result["updates"],
                    "confusion": result["confusion"],
                    "dataset": result["dataset"]["name"],
                    "elapsed_seconds": result["elapsed_seconds"],
                }
            )
            print(f"seed {seed}: accuracy {rows[-1]['accuracy']:.4f}", file=sys.stderr, flush=True)
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
    publish("accuracy", rows, summary, as_json=given.json)


if __name__ == "__main__":
    main()
