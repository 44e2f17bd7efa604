"""From the command to the first loss.

`fab job train --app examples/digits` in `single`, beside `import keras`.

Both begin with a warm disk and end when the line is there. Processor time is that of the command
and all processes below it. Most of it is imports, so the ratio to `import keras` alone says more
than seconds of one machine.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.report import arguments, publish

PROJECT = Path(__file__).parents[1]
FAB = Path(sys.executable).with_name("fab")
APP = PROJECT / "examples" / "digits"
FIRST_LOSS = "train: epoch"
IMPORT = [sys.executable, "-c", "import keras; print('imported', flush=True)"]
ROUNDS = 5
QUICK_ROUNDS = 1
LIMIT_SECONDS = 20.0


def until(command: list[str], line: str, folder: Path) -> tuple[float, float]:
    """Seconds until the command prints a line with `line`.

    Wall, and processor time of all its processes.

    Raises RuntimeError with the output if it ends without one.
    """
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    said = []
    found = None
    for text in process.stdout:
        said.append(text)
        if found is None and line in text:
            found = time.perf_counter() - begin, _processor_seconds(process.pid)
    process.wait()
    if found is None:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {''.join(said)}")
    return found


def _processor_seconds(pid: int) -> float:
    """Of the process, of those below it, and of those that they have waited for."""
    first = psutil.Process(pid)
    total = 0.0
    for process in [first, *first.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def measure(rounds: int, folder: Path) -> list[dict[str, Any]]:
    """A row for each round, after one that fills the page cache."""
    subprocess.run(
        [FAB, "-r", PROJECT, "init", "--local", "--out", "inventory.yaml"],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    train = [
        str(FAB),
        "-r",
        str(PROJECT),
        "job",
        "train",
        "--app",
        str(APP),
        "--mode",
        "single",
        "--epochs",
        "1",
    ]
    rows: list[dict[str, Any]] = []
    for turn in range(-1, rounds):
        loss = until(train, FIRST_LOSS, folder)
        imported = until(IMPORT, "imported", folder)
        row = {
            "first_loss_seconds": round(loss[0], 2),
            "first_loss_processor_seconds": round(loss[1], 2),
            "import_keras_seconds": round(imported[0], 2),
            "import_keras_processor_seconds": round(imported[1], 2),
        }
        if turn >= 0:
            rows.append(row)
            print(", ".join(f"{name} {value}" for name, value in row.items()), file=sys.stderr)
    return rows


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians, and the medians of the rounds' ratios."""
    found: dict[str, Any] = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    for what in ("", "processor_"):
        ratios = [
            row[f"first_loss_{what}seconds"] / row[f"import_keras_{what}seconds"] for row in rows
        ]
        found[f"over_import_keras{'_processor' * bool(what)}"] = round(statistics.median(ratios), 2)
    return {
        **found,
        "limit_seconds": LIMIT_SECONDS,
        "bytecode_written": not os.environ.get("PYTHONDONTWRITEBYTECODE"),
    }


def main() -> int:
    """Measure and print the object; status 1 if the first loss takes longer than it may."""
    given = arguments(
        "first_loss", "Seconds from `fab job train --app` to the first loss."
    ).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(QUICK_ROUNDS if given.quick else ROUNDS, Path(folder))
    summary = summarize(rows)
    publish("first_loss", rows, summary, as_json=given.json)
    return int(summary["first_loss_seconds"] > LIMIT_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
