"""One window at a time through exports of one run, in turn: milliseconds, memory, size, logits.

`python -m benchmarks.inference --export FOLDER --export FOLDER`

Each export answers in a process of its own, with one thread, in the runtime of its format. Every
round asks each of them for some windows, so that other work of the machine meets them all. Without
`--export` a small network is trained and exported first; with it, TensorFlow is not needed.
"""

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.asking import Asked
from benchmarks.report import arguments, publish
from core.exported import Description, read_description
from core.ground.errors import UsageError
from core.inventory.templates import local_inventory

DEADLINE_SECONDS = 300.0
ROUNDS = {"full": 25, "quick": 5, "smoke": 1}
WINDOWS = 40
"""The windows of one round."""
TRAINED = ("mode=single", "epochs=1", "data.source=synthetic", "model.hidden=32")
"""The network that is exported where no export is named."""


def exported(folder: Path, formats: Sequence[str] = ("onnx", "litert")) -> list[Path]:
    """Train a small network, and export it in each of these formats."""
    inventory = folder / "inventory.yaml"
    inventory.write_text(local_inventory(1, 1), encoding="utf-8")
    settings = [f"--set=jobs.train.{setting}" for setting in TRAINED]
    settings.append(f"--set=runs={folder / 'runs'}")
    run_quietly("cluster", "train", "--inventory", str(inventory), "--quiet", *settings)
    (run,) = folder.glob("runs/*-train")
    for name in formats:
        run_quietly("cluster.export", f"--run={run}", f"--to={name}", f"--out={folder / name}")
    return [folder / name for name in formats]


def run_quietly(module: str, *words: str) -> None:
    """Run a module of this project; its output goes to standard error."""
    subprocess.run([sys.executable, "-m", module, *words], stdout=sys.stderr, check=True)


def described(exports: Sequence[Path]) -> dict[str, tuple[Path, Description]]:
    """Folder and description of each export, by format, quantization and, of equals, its folder.

    Raises UsageError for exports of different inputs or runs, which no ratio compares.
    """
    first = read_description(exports[0])
    kinds = dict[str, tuple[Path, Description]]()
    for folder in exports:
        each = read_description(folder)
        if (each.input.shape, each.run.parameters_sha256) != (
            first.input.shape,
            first.run.parameters_sha256,
        ):
            raise UsageError(
                f"{folder}: expected an export of {first.run.folder} as the first, got"
                f" {each.run.folder}"
            )
        name = f"{each.format} {each.quantized or 'float32'}"
        if name in kinds:
            name = f"{name} ({folder.name})"
        kinds[name] = (folder.absolute(), each)
    return kinds


def measured(
    exports: Mapping[str, tuple[Path, Description]], rounds: int, windows: int
) -> list[dict[str, Any]]:
    """A row for each export. Raises ChildFailedError when one of them ends or hangs."""
    command = (sys.executable, "-m", "benchmarks.inference.in_runtime")
    times: dict[str, list[list[float]]] = {name: [] for name in exports}
    with ExitStack() as stack:
        processes = {
            name: stack.enter_context(Asked(name, (*command, str(folder)), DEADLINE_SECONDS))
            for name, (folder, _) in exports.items()
        }
        facts = {name: process.ask({"open": True}) for name, process in processes.items()}
        for process in processes.values():
            process.ask({"windows": windows})  # warm-up
        for turn in range(rounds):
            order = list(processes)
            if turn % 2:
                order.reverse()
            for name in order:
                times[name].append(processes[name].ask({"windows": windows})["milliseconds"])
    logits = {name: np.array(fact.pop("logits")) for name, fact in facts.items()}
    reference = next(iter(logits.values()))
    rows = []
    for name, (_, description) in exports.items():
        every = [value for values in times[name] for value in values]
        rows.append(
            {
                "name": name,
                **facts[name],
                "bytes": description.bytes,
                "median_ms": statistics.median(every),
                "p99_ms": float(np.quantile(every, 0.99)),
                "windows": len(every),
                "greatest_difference": float(np.abs(logits[name] - reference).max()),
                "same_labels": float((logits[name].argmax(1) == reference.argmax(1)).mean()),
                "round_medians_ms": [statistics.median(values) for values in times[name]],
            }
        )
    return rows


def summarize(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how many times as long each export takes as the first: the median round's ratio."""
    first = rows[0]["round_medians_ms"]
    over = {
        row["name"]: statistics.median(
            its / other for its, other in zip(row["round_medians_ms"], first, strict=True)
        )
        for row in rows[1:]
    }
    return {"first": rows[0]["name"], "median_ms": rows[0]["median_ms"], "over_first": over}


def main() -> int:
    """Measure, and print the object."""
    parser = arguments("inference", "One window at a time through exports of a run, in turn.")
    parser.add_argument(
        "--export",
        action="append",
        type=Path,
        metavar="FOLDER",
        help="a folder that `fab export` wrote; once for each export",
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pscluster-inference-") as temporary:
        try:
            exports = described(given.export or exported(Path(temporary)))
        except UsageError as problem:
            print(problem, file=sys.stderr)
            return int(problem.exit_code)
        rows = measured(exports, ROUNDS[given.size], WINDOWS)
    publish("inference", rows, summarize(rows), given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
