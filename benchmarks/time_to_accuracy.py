"""Seconds until people who are not in training are recognised: one slow worker and sixteen.

Each recipe of `time_to_accuracy.yaml` has a fixed schedule, whose epochs cross-validation over the
training people chose: the fewest that reach `TARGET`. A training looks at the test people once, at
its end. Coordinator, parameter server and workers are machines of their own on one switch
(`benchmarks.beds.virtual_network`), and the kernel limits each worker to a share of a core
(`benchmarks.beds.cpu_quota`), from the end of the first epoch on, in which graphs are instantiated.
The time is the number of epochs times the median of the limited ones. With the defaults a machine
is half a Raspberry Pi 3: 5 % of a core and 150 Mbit/s.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.beds import cpu_quota, virtual_network
from benchmarks.beds.local_cluster import LocalCluster, local_cluster
from benchmarks.report import arguments, publish, tell
from benchmarks.scaling import EpochClock
from cluster.jobs.sources import handed_over
from core.data import find_source, prepare
from core.data.source import PROJECT_ROOT
from core.documents.yaml_document import parse
from core.ground.accounts import account_for_roles
from core.ground.files import atomic_write, user_cache

TARGET = 0.97
RECIPES = Path(__file__).with_suffix(".yaml")
ONE = "one"
"""The recipe that the others are compared with."""
WARM_UP = 1
"""Epochs before the quotas."""
SMOKE = ("jobs.train.model.hidden=8", "jobs.train.epochs=2")


@dataclass(frozen=True)
class Recipe:
    """A training of so many workers and epochs.

    `limited` is how many epochs have quotas; without it all after the first one.
    """

    name: str
    workers: int
    epochs: int
    settings: tuple[str, ...]
    limited: int | None = None

    @classmethod
    def read(cls, path: Path = RECIPES) -> "dict[str, Recipe]":
        """Return the recipes of the file by name."""
        entries = parse(path.read_text(encoding="utf-8"), path.name).value
        return {
            name: cls(
                name,
                entry["workers"],
                entry["epochs"],
                tuple(f"jobs.train.{key}={value}" for key, value in entry["set"].items()),
                entry.get("limited"),
            )
            for name, entry in entries.items()
        }


def measure(
    recipe: Recipe, seed: int, share: float, cluster: LocalCluster, extra: Sequence[str]
) -> dict[str, Any]:
    """Train once; return the row."""
    period = cpu_quota.period_of(share)
    workers = [cluster.processes[f"worker:{k}"].pid for k in range(recipe.workers)]
    quotas = ExitStack()

    def ended(epoch: int) -> None:
        if epoch == WARM_UP:
            quotas.enter_context(cpu_quota.limited(dict.fromkeys(workers, share), period))
        if recipe.limited is not None and epoch == WARM_UP + recipe.limited:
            quotas.close()

    settings = [
        "jobs.train.recipe=unseen",
        "jobs.train.validation_subjects=0",
        f"jobs.train.epochs={recipe.epochs}",
        f"jobs.train.seed={seed}",
        *recipe.settings,
        *extra,
    ]
    with quotas:
        clock = EpochClock(cluster.folder / "runs", {}, ended)
        try:
            result = cluster.of_workers(recipe.workers).job("train", settings, clock.start)
        finally:
            events = clock.stop()
    return row_of(recipe, seed, events, result)


def row_of(
    recipe: Recipe, seed: int, events: Sequence[Mapping[str, Any]], result: Mapping[str, Any]
) -> dict[str, Any]:
    """The time of the schedule at the speed of the limited epochs, and the accuracy at its end."""
    batch = result["settings"]["batch_size"]
    windows = result["dataset"]["train_windows"] // batch * batch
    seconds = [windows / event["windows_per_second"] for event in events]
    stop = None if recipe.limited is None else WARM_UP + recipe.limited
    epoch = statistics.median(seconds[WARM_UP:stop])
    return {
        "recipe": recipe.name,
        "workers": recipe.workers,
        "mode": result["mode"],
        "codec": result["settings"]["codec"]["name"],
        "batch_size": batch,
        "optimizer": result["settings"]["optimizer"],
        "seed": seed,
        "epochs": len(seconds),
        "epoch_seconds": epoch,
        "epochs_seconds": seconds,
        "seconds": epoch * len(seconds),
        "accuracy": result["final"]["accuracy"],
        "staleness_mean": result["staleness"]["mean"],
        "parameters_sha256": result["parameters_sha256"],
        "dataset": result["dataset"]["name"],
    }


def summarize(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By recipe: accuracies, the median time, and how much sooner than one worker it is done."""
    seconds = {
        name: statistics.median(row["seconds"] for row in rows if row["recipe"] == name)
        for name in dict.fromkeys(row["recipe"] for row in rows)
    }
    summary: dict[str, Any] = {}
    for name, median in seconds.items():
        accuracies = [row["accuracy"] for row in rows if row["recipe"] == name]
        mean = statistics.fmean(accuracies)
        summary[name] = {
            "accuracy": mean,
            "spread": statistics.stdev(accuracies) if len(accuracies) > 1 else None,
            "lowest": min(accuracies),
            "seeds": len(accuracies),
            "reached": mean >= TARGET,
            "seconds": median,
            "sooner_than_one": seconds[ONE] / median if ONE in seconds else None,
        }
    return summary


def _flags() -> argparse.ArgumentParser:
    recipes = Recipe.read()
    parser = arguments("time_to_accuracy", "Seconds to 0.97 on people who are not in training.")
    parser.add_argument("--share", type=float, default=0.05, help="of a core for each worker")
    parser.add_argument("--megabits", type=float, default=150.0, help="of each machine's cable")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--recipes", nargs="+", choices=recipes, default=list(recipes), metavar="RECIPE"
    )
    parser.add_argument(
        "--into", type=Path, help="a file that keeps each row as it comes; no row is made again"
    )
    return parser


def main() -> None:
    """Measure and print the object; status 1 with one line where the kernel cannot do it."""
    given = _flags().parse_args()
    for problem in (cpu_quota.why_not(), virtual_network.why_not()):
        if problem:
            sys.exit(f"benchmarks.time_to_accuracy: {problem}")
    if given.size != "full":
        given.seeds = given.seeds[:1]
        given.recipes = given.recipes[:2]
    rows: list[dict[str, Any]] = []
    if given.into is not None and given.into.exists():
        rows = json.loads(given.into.read_bytes())
    ready = {(row["recipe"], row["seed"]) for row in rows}
    recipes = Recipe.read()
    due = [
        (recipes[name], seed)
        for seed in given.seeds
        for name in given.recipes
        if (name, seed) not in ready
    ]
    if due:
        _train(due, given, rows)
    publish("time_to_accuracy", rows, summarize(rows), given)


def _train(
    due: Sequence[tuple[Recipe, int]], given: argparse.Namespace, rows: list[dict[str, Any]]
) -> None:
    """Add a row for each of these."""
    named = "synthetic" if given.size == "smoke" else None
    source = find_source(named, os.environ, PROJECT_ROOT, user_cache())
    dataset = handed_over(prepare(source, cache=user_cache() / "prepared"), account_for_roles())
    extra = [f"jobs.train.data.source={dataset.folder}", *(SMOKE if named else ())]
    workers = max(recipe.workers for recipe, _ in due)
    with tempfile.TemporaryDirectory(prefix="pscluster-benchmark-") as cache, ExitStack() as stack:
        machines = stack.enter_context(virtual_network.machines(workers + 2, given.megabits))
        os.environ["XDG_CACHE_HOME"] = cache
        cluster = stack.enter_context(local_cluster(machines=machines))
        for recipe, seed in due:
            rows.append(measure(recipe, seed, given.share, cluster, extra))
            tell(
                f"{recipe.name}, seed {seed}: {rows[-1]['accuracy']:.4f} after"
                f" {rows[-1]['epochs']} epochs of {rows[-1]['epoch_seconds']:.1f} s"
            )
            if given.into is not None:
                atomic_write(given.into, json.dumps(rows, indent=2).encode() + b"\n")


if __name__ == "__main__":
    main()
