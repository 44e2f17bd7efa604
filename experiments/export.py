"""Every built-in network and some apps in every format of `fab export`.

`python -m experiments.export --json > FILE`.

Each network is trained for one epoch on the real HAPT set, each app on its own data, in one
process, and exported by the product, which compares every test window with TensorFlow. Then one
window at a time is answered on one thread: the formats and TensorFlow's traced function take turns,
so that all of them meet the same machine, and what is said is the median of the rounds' ratios.
With `--runs FOLDER` a run that is there already is not trained again.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import arguments, publish
from core.inventory.extensions import MODELS
from core.inventory.templates import local_inventory

FAB = Path(sys.executable).with_name("fab")
PROJECT = Path(__file__).parents[1]
FORMATS = (
    ("onnx", False),
    ("onnx", True),
    ("litert", False),
    ("litert", True),
    ("savedmodel", False),
    ("keras", False),
)
APPS = (
    "examples/bare",
    "examples/characters",
    "examples/digits",
    "examples/tabular",
    "examples/transformer",
    "experiments/mobile_net.py",
)
"""Files or folders with a model of one's own; `bare` is none of Keras's."""
EPOCHS = {"examples/bare": 10, "examples/digits": 10, "experiments/mobile_net.py": 10}
"""Of apps with so few examples that one epoch leaves the moving averages of their batch
normalization unused."""
READS = {"examples/characters": str(PROJECT / "docs")}
"""Data of an app that lie beside its folder, and not beside the run's copy of it."""
ROUNDS = 25
QUICK_ROUNDS = 3
CALLS = 10
WINDOWS = 64
"""Test windows that the timed calls take turns with."""
LEAST_RATIO = 3.0
"""TensorFlow's traced function over ONNX Runtime, for `residual`."""


def trained(name: str, folder: Path) -> Path:
    """The folder of a run of this network, trained now unless it is there."""
    runs = folder / name.replace("/", "-")
    if "/" in name:
        chosen = ["--app", str(PROJECT / name)]
    else:
        chosen = ["--model", name]
    for result in sorted(runs.glob("*-train/result.json")):
        if json.loads(result.read_bytes())["status"] == "done":
            return result.parent
    inventory = folder / "inventory.yaml"
    inventory.write_text(local_inventory(1, 1), encoding="utf-8")
    words = [
        str(FAB),
        "-r",
        str(PROJECT),
        "job",
        "train",
        "--inventory",
        str(inventory),
        "--mode",
        "single",
        *chosen,
        "--epochs",
        str(EPOCHS.get(name, 1)),
        "--set",
        f"runs={runs}",
        "--quiet",
    ]
    ended = subprocess.run(words, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(
            f"{' '.join(words)} ended with {ended.returncode}: {ended.stderr[-2000:]}"
        )
    return next(runs.glob("*-train"))


def rows_of(name: str, folder: Path, rounds: int) -> list[dict[str, Any]]:
    """A row for each format of one network, and one for TensorFlow."""
    from cluster.export.examples import examples_of, read_model
    from cluster.export.export import export
    from cluster.export.formats.format import FORMATS as KINDS
    from cluster.export.graph import traced
    from cluster.export.request import ExportRequest
    from cluster.export.trained_run import read_result

    import tensorflow as tf  # isort: skip

    run = read_result(trained(name, folder))
    model = read_model(run)
    examples = examples_of(run, model, READS.get(name), lambda *_: None)
    windows = np.ascontiguousarray(
        examples.inputs()[:: max(1, len(examples.inputs()) // WINDOWS)][:WINDOWS]
    )
    function = traced(model)
    answers: dict[str, Any] = {"tensorflow": lambda window: function(tf.constant(window))}
    rows: list[dict[str, Any]] = [
        {"model": name, "format": "tensorflow", "parameters": model.network.layout.size}
    ]
    with tempfile.TemporaryDirectory(prefix="pscluster-export-") as temporary:
        for to, quantized in formats_of(name):
            label = f"{to}{' dynamic' * quantized}"
            out = Path(temporary, label.replace(" ", "-"))
            row: dict[str, Any] = {"model": name, "format": label}
            try:
                made = export(
                    ExportRequest(to, quantized, out), run, model, examples, lambda *_: None
                )
            except Exception as problem:  # the table says which, and why
                rows.append({**row, "refused": str(problem)})
                continue
            answers[label] = KINDS[to].opened(out / made.file, made)
            check = made.check
            rows.append(
                {
                    **row,
                    "bytes": made.bytes,
                    "windows": check.windows,
                    "greatest_difference": check.greatest_difference,
                    "same_labels": check.same_labels,
                    "accuracy_tensorflow": check.accuracy_tensorflow,
                    "accuracy": check.accuracy,
                }
            )
        found = interleaved(answers, windows, rounds)
    return [{**row, **found.get(row["format"], {})} for row in rows]


def formats_of(name: str) -> Sequence[tuple[str, bool]]:
    """Of a network all; of an app those in float32, without `keras` where it has no Keras."""
    if "/" not in name:
        return FORMATS
    return [
        (to, quantized)
        for to, quantized in FORMATS
        if not quantized and (to, name) != ("keras", APPS[0])
    ]


def interleaved(
    answers: Mapping[str, Any], windows: Any, rounds: int
) -> dict[str, dict[str, float]]:
    """Milliseconds of one window, and TensorFlow's over it.

    Medians over rounds in which all of them take turns.
    """
    taken: dict[str, list[float]] = {name: [] for name in answers}
    for turn in range(-1, rounds):
        for name, answer in answers.items():
            seconds = []
            for call in range(CALLS):
                window = windows[(turn * CALLS + call) % len(windows)][None]
                begin = time.perf_counter()
                np.asarray(answer(window))
                seconds.append(time.perf_counter() - begin)
            if turn >= 0:
                taken[name].append(1e3 * float(np.median(seconds)))
    own = {name: np.array(values) for name, values in taken.items()}
    found = {}
    for name, values in own.items():
        ratios = own["tensorflow"] / values
        low, middle, high = np.percentile(ratios, [25, 50, 75])
        found[name] = {
            "ms": round(float(np.median(values)), 3),
            "tensorflow_over_it": round(float(middle), 2),
            "lower_quartile": round(float(low), 2),
            "upper_quartile": round(float(high), 2),
        }
    return found


def main() -> int:
    """Measure and print the object.

    Status 1 if an export was refused or ONNX is not as fast as it must be.
    """
    parser = arguments("export", "Built-in networks and apps in every format of `fab export`.")
    parser.add_argument("--runs", type=Path, help="a folder that keeps the trained runs")
    parser.add_argument("--models", nargs="*", default=list(MODELS.names), help="which networks")
    parser.add_argument(
        "--apps", nargs="*", default=list(APPS), help="which files or folders of one's own models"
    )
    given = parser.parse_args()
    from cluster.export.graph import one_thread

    one_thread()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="pscluster-export-runs-") as temporary:
        folder = (given.runs or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for name in (*given.models, *given.apps):
            found = rows_of(name, folder, QUICK_ROUNDS if given.quick else ROUNDS)
            rows += found
            for row in found:
                print(json.dumps(row), file=sys.stderr, flush=True)
    refused = [f"{row['model']} {row['format']}" for row in rows if "refused" in row]
    fast = [
        row["tensorflow_over_it"]
        for row in rows
        if (row["model"], row["format"]) == ("residual", "onnx")
    ]
    summary = {
        "refused": refused,
        "greatest_difference_float32": max(
            (
                row["greatest_difference"]
                for row in rows
                if "bytes" in row and "dynamic" not in row["format"]
            ),
            default=None,
        ),
        "least_same_labels_dynamic": min(
            (row["same_labels"] for row in rows if "bytes" in row and "dynamic" in row["format"]),
            default=None,
        ),
        "residual_tensorflow_over_onnx": fast[0] if fast else None,
        "expected_at_least": LEAST_RATIO,
    }
    publish("export", rows, summary, as_json=given.json)
    return int(bool(refused) or (bool(fast) and fast[0] < LEAST_RATIO))


if __name__ == "__main__":
    sys.exit(main())
