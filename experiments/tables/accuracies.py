"""What the networks reach on HAPT: the tables of experiments/pages/results.md.

Kimm's tables stand beside ours: the layers, and accuracy and time of our repeats.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from cluster.sweeps.sweep_file import SweepFile, read_sweep_file
from core.inventory.slots import LIBRARY
from core.models.dblstm import DeepBidirectionalModel
from core.models.network import build
from experiments.tables.measured import (
    NONE,
    NOT_YET,
    ROOT,
    clock,
    of_processor,
    paper_table,
    processors_of,
    results,
    share,
    table,
    with_legend,
)

NETWORKS = {
    "thesis-h32": "three plain layers, h32",
    "residual": "`residual`, h32",
    "dblstm": "`dblstm`",
    "thesis-h256": "three plain layers of 256 units",
    "spectral": "`spectral`, 256 units",
    "residual-augmented": "`residual`, h32, augmented",
    "hybrid": "`hybrid`, body `residual`, h32, augmented",
}
"""Labels by the name in `accuracy-NAME.json`."""

CAUSAL = {"spectral": "spectral", "residual": "residual-augmented", "hybrid": "hybrid"}
"""The same network on two-way windows, by the name in `accuracy-NAME-causal.json`."""

BY_CROSS_VALIDATION = {
    "residual": "`residual`, h32, plain",
    "residual-augmented": "`instance_norm: append`, 15 degrees, warp 0.2",
    "residual-swa": "plain, with a mean over the last quarter of the epochs",
    "residual-augmented-swa": "`instance_norm`, 15 degrees, warp 0.2, and this mean",
    "hybrid": "`hybrid`, plain, body `conv-lstm`",
    "hybrid-augmented": "`hybrid`, body `residual`, h32, augmented",
}
"""Labels by the name in `cv-NAME.json`."""

MODES = {
    "single": "`single`",
    "sync": "`sync`",
    "sync fp16": "`sync`, fp16",
    "async": "`async`",
    "ssp": "`ssp`, bound 1",
    "async topk": "`async`, topk (5 %, no momentum)",
    "local": "`local`, 8 steps",
    "local nesterov": "`local`, Nesterov 0.5",
}
"""Labels by the name of a variant in `modes.json`."""


def accuracies() -> str:
    """Return a row a network: each seed, the mean, and the file."""
    rows = []
    for name, label in NETWORKS.items():
        trained = results(f"accuracy-{name}.json").get("rows", [])
        if trained:
            rows.append(
                [
                    label,
                    f"{trained[0]['parameters']:,}",
                    _seeds(trained),
                    f"**{_mean(trained)}**",
                    f"{fmean(row['f1_macro'] for row in trained):.4f}",
                    _bits(trained[0]),
                    f"`accuracy-{name}`",
                ]
            )
        else:
            rows.append([label, NONE, NOT_YET, NONE, NONE, NONE, NONE])
    heads = ["network", "parameters", "seeds 0, 1, ...", "mean", "macro F1", "seed 0", "file"]
    return table(heads, rows)


def _bits(row: Mapping[str, Any]) -> str:
    """Show what a training ends with on every machine; nothing where that is not so."""
    if row.get("arithmetic") == LIBRARY and row["mode"] != "async":
        return f"`{row['parameters_sha256'][:8]}`"
    return NONE


def people() -> str:
    """Return the accuracy of each test person, the mean over the seeds of a network."""
    rows = []
    persons: list[str] = []
    for name, label in NETWORKS.items():
        trained = results(f"accuracy-{name}.json").get("rows", [])
        if trained and trained[0].get("by_person"):
            persons = list(trained[0]["by_person"])
            means = (fmean(row["by_person"][person] for row in trained) for person in persons)
            rows.append([label, *(f"{mean:.3f}" for mean in means)])
    judged = results("linear_baseline.json").get("summary", {}).get("test", {}).get("by_person")
    if persons and judged:
        rows.append(["logistic regression", *(f"{judged[person]:.3f}" for person in persons)])
    return table(["", *persons], rows)


def causal() -> str:
    """Return the networks on causal windows, and seed by seed over two-way ones."""
    rows = []
    for name, two_way in CAUSAL.items():
        trained = results(f"accuracy-{name}-causal.json").get("rows", [])
        before = results(f"accuracy-{two_way}.json").get("rows", [])
        if not trained or not before:
            rows.append([NETWORKS[two_way], NOT_YET, NONE, NONE])
            continue
        changes = [
            after["accuracy"] - row["accuracy"] for after, row in zip(trained, before, strict=True)
        ]
        change = f"{fmean(changes):+.4f} ± {stdev(changes):.4f}"
        rows.append([NETWORKS[two_way], _seeds(trained), f"**{_mean(trained)}**", change])
    heads = ["network", "seeds 0 to 4 on causal windows", "mean", "over two-way, seed by seed"]
    return table(heads, rows)


def cross_validated() -> str:
    """Return the means of three folds, by the settings."""
    rows = []
    for name, label in BY_CROSS_VALIDATION.items():
        summary = results(f"cv-{name}.json").get("summary", {})
        rows.append([label, share(summary.get("mean")), f"`cv-{name}`"])
    return table(["three folds, seed 0, 12 epochs", "mean", "file"], rows)


def epochs_compared() -> str:
    """Return the mean and standard error of the folds, by epochs and rate."""
    rows = []
    for row in results("cv-epochs.json").get("rows", []):
        fold_accuracies = [fold["accuracy"] for fold in row["folds"]]
        error = stdev(fold_accuracies) / len(fold_accuracies) ** 0.5
        setting = [str(row["epochs"]), str(row["learning_rate"]), str(len(fold_accuracies))]
        rows.append([*setting, f"{fmean(fold_accuracies):.4f} ± {error:.4f}"])
    return table(["epochs", "rate", "trainings", "mean and standard error"], rows)


def modes() -> str:
    """Return the modes at equal epochs: accuracy by seed, bytes and speed."""
    measurements = results("modes.json")
    rows = []
    for name, label in MODES.items():
        trained = [row for row in measurements.get("rows", []) if row["variant"] == name]
        if not trained:
            rows.append([label, NOT_YET, NONE, NONE, NONE])
            continue
        summary = measurements["summary"]["variants"][name]
        sent = summary["server_bytes_per_batch"]
        if sent is None:
            kilobytes = NONE
        else:
            kilobytes = f"{sent / 1000:.1f} KB"
        speed = f"{summary['windows_per_second']:,.0f}"
        rows.append([label, _seeds(trained), _mean(trained), kilobytes, speed])
    return table(["", "seeds 0, 1, 2", "mean", "bytes a batch", "windows/s"], rows)


def _seeds(trained: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(share(row["accuracy"]) for row in trained)


def _mean(trained: Sequence[Mapping[str, Any]]) -> str:
    """Return the mean and, of several seeds, the standard deviation."""
    seed_accuracies = [row["accuracy"] for row in trained]
    if len(seed_accuracies) == 1:
        return share(seed_accuracies[0])
    return f"{fmean(seed_accuracies):.4f} ± {stdev(seed_accuracies):.4f}"


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
