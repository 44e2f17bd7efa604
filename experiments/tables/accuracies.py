"""What the networks reach on HAPT: the tables of pages/results.md, from trainings' results."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from core.inventory.arithmetic import LIBRARY
from experiments.tables.measured import NONE, NOT_YET, results, share, table

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
