"""Kimm's tables beside ours: the layers, and accuracy and time of our repeats."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from cluster.sweeps.sweep_file import SweepFile, read_sweep_file
from core.models.dblstm import DeepBidirectionalModel
from core.models.network import build
from experiments.tables.measured import (
    NONE,
    ROOT,
    clock,
    of_processor,
    processors_of,
    results,
    table,
    with_legend,
)
from experiments.tables.paper import paper_table

KIMM = "sweep-kimm.json"
FILE = ROOT / "sweeps" / "kimm.yaml"
MODEL = "jobs.train.model."


def kimm_layers() -> str:
    """Kimm's layers and ours."""
    sizes = dict[str, int]()
    network = build(DeepBidirectionalModel(), window_steps=128, channels=9, classes=6)
    for slot in network.layout.slots:
        layer = slot.spec.name.partition("/")[0]
        sizes[layer] = sizes.get(layer, 0) + slot.spec.size
    rows = [
        [row["layer"], row["output"], f"{row['parameters']:,}", name, f"**{size:,}**"]
        for row, (name, size) in zip(paper_table("kimm-layers").rows, sizes.items(), strict=True)
    ]
    total = sum(row["parameters"] for row in paper_table("kimm-layers").rows)
    rows.append(["total", "", f"{total:,}", "", f"**{network.layout.trained_size:,}**"])
    return table(["Kimm's layer", "output", "parameters", "ours", "parameters"], rows)


def kimm_results() -> str:
    """Kimm's figures, and the mean and deviation of ours.

    The settings that were trained, how often, and how many.
    """
    heads = [
        "",
        "units",
        "layers",
        "batch",
        "accuracy",
        "precision",
        "recall",
        "F1",
        "time",
        "repeats",
    ]
    rows = []
    for row in paper_table("kimm-tpu-cpu").rows:
        shares = [f"{row[key] / 100:.4f}" for key in ("accuracy", "precision", "recall", "f1")]
        rows.append(
            [
                f"Kimm, {row['device']}",
                "128",
                "3",
                NONE,
                *shares,
                clock(row["seconds"]),
                NONE,
            ]
        )
    sweep = results(KIMM)
    sweep_file = read_sweep_file(FILE)
    groups = dict[tuple[Any, ...], list[Mapping[str, Any]]]()
    for run in sweep.get("runs", ()):
        settings = run["settings"]
        if run["state"] == "finished":
            key = (
                settings[f"{MODEL}units"],
                settings[f"{MODEL}layers"],
                settings["jobs.train.batch_size"],
            )
            groups.setdefault(key, []).append(run)
    for key, runs in sorted(groups.items()):
        rows.append(["ours", *map(str, key), *_repeats(sweep, runs, len(sweep_file.seeds))])
    shipped = results("accuracy-dblstm.json")
    accuracy, f1, seconds = (
        fmean(training[key] for training in shipped["rows"])
        for key in ("accuracy", "f1_macro", "elapsed_seconds")
    )
    setup = ["ours, recipe `shipped`, asynchronous", "128", "3", "100"]
    time = of_processor(clock(seconds), processors_of(shipped, shipped["rows"]))
    rows.append(
        [*setup, f"**{accuracy:.4f}**", NONE, NONE, f"{f1:.4f}", time, str(len(shipped["rows"]))]
    )
    markdown = with_legend(table(heads, rows), "Kimm's network")
    return f"{markdown}\n\n{_how_many(groups, sweep_file)}"


def _how_many(groups: Mapping[tuple[Any, ...], Sequence[Any]], sweep_file: SweepFile) -> str:
    settings = len(sweep_file.choices)
    repeats = len(sweep_file.seeds)
    trained = sum(len(runs) for runs in groups.values())
    sentence = (
        f"`sweeps/kimm.yaml` has {settings} settings with {repeats} repeats each,"
        f" {settings * repeats} trainings"
    )
    return (
        f"{sentence}. {trained} of them are trained, in {len(groups)} settings; the other settings"
        " have no row."
    )


def _repeats(
    sweep: Mapping[str, Any], runs: Sequence[Mapping[str, Any]], seed_count: int
) -> list[str]:
    cells = []
    for name in ("accuracy", "precision_macro", "recall_macro", "f1_macro"):
        values = [run["final"][name] for run in runs]
        if len(values) > 1:
            spread = f" ± {stdev(values):.4f}"
        else:
            spread = ""
        cells.append(f"{fmean(values):.4f}{spread}")
    seconds = fmean(run.get("cpu_seconds", run["seconds"]) for run in runs)
    time = of_processor(clock(seconds), processors_of(sweep, runs))
    return [f"**{cells[0]}**", *cells[1:], time, f"{len(runs)} of {seed_count}"]
