"""Three plain layers in PyTorch and in ours, trained to the end.

Accuracy and time, epoch by epoch in turn.

The thesis's Table 20 compares the two frameworks with other networks, optimizers and numbers of
epochs each. Here both have the shipped recipe, the same initial weights, batches in the same order
and the same learning rates. PyTorch trains alone and as DistributedDataParallel over gloo on two
and four processes; ours in `single` and in `sync` on two and four workers. All processes stay; a
round is one epoch of each, one after the other, so that what else the machine does strikes them
alike. A time is that of the epoch's updates alone. The test set is looked at once, after the last
epoch.

With `--state FOLDER` an interrupted measurement continues; `--seconds` ends it in order before that
time.
"""

import hashlib
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.beds.local_cluster import LocalCluster, local_cluster
from benchmarks.kernel.contestant import Missing, torch_interpreter
from benchmarks.report import arguments, publish
from core.asking import Asked
from core.atomic_write import atomic_write
from core.inventory import load
from experiments.pytorch_twin.recipe import write_recipe

ALONE = "ours single"
QUICK_EPOCHS = 1
OURS: Mapping[str, int] = {ALONE: 0, "ours sync on 2": 2, "ours sync on 4": 4}
"""Workers; none trains in the coordinator."""
TORCH: Mapping[str, int] = {"pytorch": 1, "pytorch DDP on 2": 2, "pytorch DDP on 4": 4}
"""Processes."""
BESIDE: Mapping[str, str] = dict(zip(TORCH, OURS, strict=True))
MICRO_BATCHES = 4
PATIENCE_SECONDS = 900.0


def main() -> int:
    """Train all contestants and print the object, or end in order where the time is up."""
    parser = arguments(
        "pytorch_twin", "Three plain layers in PyTorch and in ours, trained to the end."
    )
    parser.add_argument(
        "--torch-python", help="an interpreter that imports torch and numpy (benchmarks.kernel)"
    )
    parser.add_argument("--epochs", type=int, default=30, help="as in the shipped recipe")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument(
        "--contestants", nargs="+", default=[*OURS, *TORCH], choices=[*OURS, *TORCH], metavar="NAME"
    )
    parser.add_argument(
        "--set", action="append", default=[], help="another key of the inventory (repeatable)"
    )
    parser.add_argument(
        "--state",
        type=Path,
        default=Path(".cache/pytorch_twin"),
        help="what a later call continues from",
    )
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="end in order before this time is over"
    )
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    if given.quick:
        epochs = QUICK_EPOCHS
    else:
        epochs = given.epochs
    try:
        python = torch_interpreter(given.torch_python)
    except Missing as problem:
        print(problem, file=sys.stderr)
        return 1
    rows: list[dict[str, Any]] = []
    for seed in given.seeds:
        folder = given.state / folder_of(given.hidden, epochs, seed, given.set)
        folder.mkdir(parents=True, exist_ok=True)
        settings = [
            f"jobs.train.model.hidden={given.hidden}",
            f"jobs.train.epochs={epochs}",
            f"jobs.train.seed={seed}",
            "jobs.train.validation_subjects=0",
            f"jobs.train.slots={MICRO_BATCHES}",
            *given.set,
        ]
        found = measured(folder, settings, given.contestants, python, end)
        if found is None:
            print(f"seed {seed}: not done yet: run the same command again", file=sys.stderr)
            return 3
        rows += [{"seed": seed, "hidden": given.hidden, **row} for row in found]
    publish("pytorch_twin", rows, summary(rows), as_json=given.json)
    return 0


def folder_of(hidden: int, epochs: int, seed: int, others: Sequence[str]) -> str:
    """The name of a training's state.

    Other settings have another, so that none continues what is not its own.
    """
    name = f"h{hidden}-e{epochs}-seed{seed}"
    if others:
        return f"{name}-{hashlib.sha256(json.dumps(others).encode()).hexdigest()[:8]}"
    return name


def measured(
    folder: Path, settings: Sequence[str], names: Sequence[str], python: str, end: float
) -> list[dict[str, Any]] | None:
    """The rows of one seed; None where the time ended first."""
    kept = folder / "progress.json"
    if kept.exists():
        done: dict[str, Any] = json.loads(kept.read_text())
    else:
        done = {}
    with ExitStack() as stack:
        clusters = {
            name: stack.enter_context(local_cluster(max(1, OURS[name])))
            for name in names
            if name in OURS
        }
        if clusters:
            first = next(iter(clusters.values()))
        else:
            first = stack.enter_context(local_cluster(1))
        recipe = write_recipe(load(first.inventory.path, settings), folder / "recipe.npz")
        asked = {}
        for name in names:
            row = done.setdefault(name, {"seconds": {}, "losses": {}, "final": None})
            if row["final"] is None:
                command = _command(name, folder, recipe, settings, clusters, python)
                asked[name] = stack.enter_context(Asked(name, command, PATIENCE_SECONDS))
        longest = 0.0
        for epoch in range(1, recipe["epochs"] + 1):
            waiting = {
                name: one for name, one in asked.items() if str(epoch) not in done[name]["seconds"]
            }
            if waiting and time.monotonic() + 1.5 * longest > end:
                for one in asked.values():
                    one.ask({"stop": True})
                return None
            began = time.monotonic()
            for name, one in waiting.items():
                _epoch(one, done[name], epoch)
                print(
                    f"{name}: epoch {epoch}, {done[name]['seconds'][str(epoch)]:.2f} s",
                    file=sys.stderr,
                    flush=True,
                )
            atomic_write(kept, json.dumps(done, indent=1).encode() + b"\n")
            longest = max(longest, time.monotonic() - began)
        for name, one in asked.items():
            done[name]["final"] = one.ask({"finish": True})
        atomic_write(kept, json.dumps(done, indent=1).encode() + b"\n")
    return [_row(name, done[name], recipe) for name in names]


def _command(
    name: str,
    folder: Path,
    recipe: Mapping[str, Any],
    settings: Sequence[str],
    clusters: Mapping[str, LocalCluster],
    python: str,
) -> list[str]:
    if name in TORCH:
        checkpoint = folder / f"{name.replace(' ', '-')}.pt"
        flags = [
            f"--recipe={folder / 'recipe.npz'}",
            f"--checkpoint={checkpoint}",
            f"--processes={TORCH[name]}",
        ]
        return [python, "-m", "experiments.pytorch_twin.in_torch", *(str(flag) for flag in flags)]
    if OURS[name]:
        mode = "sync"
    else:
        mode = "single"
    own = [
        *settings,
        f"jobs.train.mode={mode}",
        f"runs={(folder / name.replace(' ', '-')).resolve()}",
    ]
    own.append("jobs.train.checkpoint.every_seconds=20")
    words = [
        sys.executable,
        "-m",
        "experiments.pytorch_twin.ours",
        "--inventory",
        str(clusters[name].inventory.path),
    ]
    return [
        *words,
        f"--windows-an-epoch={recipe['windows_an_epoch']}",
        *(f"--set={one}" for one in own),
    ]


def _epoch(one: Asked, row: dict[str, Any], epoch: int) -> None:
    """Have one contestant train up to this epoch: one that resumed may be some behind."""
    reached = 0
    while reached < epoch:
        answer = one.ask({"epoch": True})
        reached = answer["epoch"]
        row["seconds"][str(reached)] = answer["seconds"]
        row["losses"][str(reached)] = answer["loss"]
        if reached == 1:
            row["first_losses"] = answer["first_losses"]
        row["threads"] = answer.get("threads")


def _row(name: str, done: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    # A kill between a contestant's checkpoint and our note of it costs the note of that epoch.
    seconds, losses = (
        [done[what].get(str(epoch)) for epoch in range(1, recipe["epochs"] + 1)]
        for what in ("seconds", "losses")
    )
    known = [one for one in seconds if one is not None]
    final = done["final"]
    if "confusion" in final:
        figures = figures_of(final["confusion"])
    else:
        figures = final["final"]
    return {
        "contestant": name,
        "epochs": recipe["epochs"],
        "accuracy": figures["accuracy"],
        "f1_macro": figures["f1_macro"],
        "train_seconds": statistics.fmean(known) * len(seconds),
        "epochs_without_a_time": len(seconds) - len(known),
        "median_epoch_seconds": statistics.median(known),
        "epoch_seconds": seconds,
        "losses": losses,
        "first_losses": done["first_losses"],
        "threads": done["threads"],
        "dataset": recipe["dataset"],
        "parameters_sha256": final.get("parameters_sha256"),
    }


def figures_of(confusion: Sequence[Sequence[int]]) -> dict[str, float]:
    """Accuracy and macro F1 of a confusion matrix, rows the true class."""
    right = [row[place] for place, row in enumerate(confusion)]
    true = [sum(row) for row in confusion]
    said = [sum(column) for column in zip(*confusion, strict=True)]
    f1 = [
        2 * hit / (one + other) if one + other else 0.0
        for hit, one, other in zip(right, true, said, strict=True)
    ]
    return {"accuracy": sum(right) / sum(true), "f1_macro": statistics.fmean(f1)}


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of each contestant: accuracy over the seeds.

    PyTorch's time beside ours, the median of the rounds' ratios.
    """
    found: dict[str, Any] = {}
    for name in dict.fromkeys(row["contestant"] for row in rows):
        mine = [row for row in rows if row["contestant"] == name]
        accuracies = [row["accuracy"] for row in mine]
        found[name] = {
            "mean_accuracy": statistics.fmean(accuracies),
            "spread": statistics.stdev(accuracies) if len(accuracies) > 1 else None,
            "seconds": statistics.fmean(row["train_seconds"] for row in mine),
        }
        ratios = [
            torch / ours
            for row in mine
            for other in rows
            if other["contestant"] == BESIDE.get(name) and other["seed"] == row["seed"]
            for torch, ours in zip(row["epoch_seconds"], other["epoch_seconds"], strict=True)
            if torch is not None and ours is not None
        ]
        if ratios:
            found[name]["time_over_ours"] = statistics.median(ratios)
            found[name]["beside"] = BESIDE[name]
    return found


if __name__ == "__main__":
    sys.exit(main())
