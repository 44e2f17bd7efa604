"""Exports of one run and TensorFlow's traced function, each in a process of its own, asked in turn.

Every round asks each of them for some windows, so that other work of the machine meets them all.
"""

import logging
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from core.asking import Asked
from core.cage import landlock
from core.errors import UsageError
from core.exported import Description, read

log = logging.getLogger(__name__)

DEADLINE_SECONDS = 300.0
TENSORFLOW = "tensorflow"


@dataclass(frozen=True)
class Contestant:
    """One process to be asked; `description` is that of its export, of TensorFlow's first."""

    name: str
    command: tuple[str, ...]
    description: Description


def contestants(exports: Sequence[Path], run: Path | None, threads: int) -> list[Contestant]:
    """All that take part.

    Raises UsageError for exports of different inputs or runs, which no ratio compares.
    """
    described = {folder: read(folder) for folder in exports}
    first = described[exports[0]]
    for folder, each in described.items():
        if (each.input.shape, each.run.parameters_sha256) != (
            first.input.shape,
            first.run.parameters_sha256,
        ):
            raise UsageError(
                f"{folder}: expected an export of {first.run.folder} as the first, got"
                f" {each.run.folder}"
            )
    python = (sys.executable, "-m")
    found = [
        Contestant(
            _named(folder, described),
            (*python, "core.exported.timed.in_runtime", str(folder), str(threads)),
            each,
        )
        for folder, each in described.items()
    ]
    if run is not None:
        if not _has_tensorflow():
            log.warning("tensorflow is not installed: the exports run without it")
        else:
            if (run / "app").is_dir() and not landlock.abi():
                log.warning("%s: its code runs uncaged: %s", run, landlock.found().reason)
            words = ("cluster.export.in_tensorflow", str(exports[0]), str(run), str(threads))
            found.append(Contestant(TENSORFLOW, (*python, *words), first))
    return found


def _has_tensorflow() -> bool:
    try:
        return find_spec("tensorflow") is not None
    except ImportError:
        return False


def _named(folder: Path, described: Mapping[Path, Description]) -> str:
    """Format and quantization; the folder too where two exports have the same."""
    kinds = {
        each: f"{about.format} {about.quantized or 'float32'}" for each, about in described.items()
    }
    alone = list(kinds.values()).count(kinds[folder]) == 1
    if alone:
        return kinds[folder]
    return f"{kinds[folder]} ({folder.name})"


def measured(asked: Sequence[Contestant], rounds: int, windows: int) -> list[dict[str, Any]]:
    """A row for each contestant. Raises ChildFailedError when one of them ends or hangs."""
    with ExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="pscluster-timed-"))
        private = ("env", f"TMPDIR={temporary}")
        processes = [
            stack.enter_context(Asked(each.name, (*private, *each.command), DEADLINE_SECONDS))
            for each in asked
        ]
        facts = [process.ask({"open": True}) for process in processes]
        for process in processes:
            process.ask({"windows": windows})  # warm-up
        times: list[list[list[float]]] = [[] for _ in asked]
        for turn in range(rounds):
            if turn % 2 == 0:
                order = range(len(processes))
            else:
                order = range(len(processes) - 1, -1, -1)
            for place in order:
                times[place].append(processes[place].ask({"windows": windows})["milliseconds"])
    reference = np.array(
        facts[-1]["logits"] if asked[-1].name == TENSORFLOW else facts[0]["logits"]
    )
    return [
        _row(each, fact, found, reference)
        for each, fact, found in zip(asked, facts, times, strict=True)
    ]


def _row(
    contestant: Contestant,
    facts: Mapping[str, Any],
    times: list[list[float]],
    reference: np.ndarray,
) -> dict[str, Any]:
    every = [value for values in times for value in values]
    logits = np.array(facts["logits"])
    is_export = contestant.name != TENSORFLOW
    return {
        "name": contestant.name,
        "runtime": facts["runtime"],
        "quantized": contestant.description.quantized if is_export else None,
        "bytes": contestant.description.bytes if is_export else None,
        "median_ms": statistics.median(every),
        "p99_ms": float(np.quantile(every, 0.99)),
        "windows": len(every),
        "process_mb": facts["process_mb"],
        "model_and_runtime_mb": facts["model_and_runtime_mb"],
        "first_answer_seconds": facts["first_answer_seconds"],
        "greatest_difference": float(np.abs(logits - reference).max()),
        "same_labels": float((logits.argmax(1) == reference.argmax(1)).mean()),
        "round_medians_ms": [statistics.median(values) for values in times],
    }


def summarize(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how many times as long each contestant takes as the first.

    It is the median of the rounds' ratios.
    """
    first = rows[0]["round_medians_ms"]
    over = {
        row["name"]: statistics.median(
            one / other for one, other in zip(row["round_medians_ms"], first, strict=True)
        )
        for row in rows[1:]
    }
    return {"first": rows[0]["name"], "over_first": over}
