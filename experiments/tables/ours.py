"""Our trainings beside the papers': which run stands in which place of their tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Any

from experiments.tables.measured import names_of, processors_of, results
from experiments.tables.paper import Row, paper_table

BATCH = 100
WINDOWS_HERE = 7400
"""An epoch's windows; its last batch, which is not full, is left out."""
SWEEP = "sweep-thesis.json"
PIS_TRAINED = "pis-table-21.json"
TWINS = "pytorch_twin*.json"


@dataclass(frozen=True)
class Ours:
    """What we measured for one training."""

    accuracy: float
    f1: float | None
    seconds: float
    window_ms: float | None
    """Time for a trained window, of the same kind as `seconds`."""
    processors: frozenset[str] = frozenset()
    """Processors that took `seconds`."""


@cache
def trained() -> Mapping[int, Ours]:
    """Our training of each of the 52 runs, by its place in `thesis-runs`.

    Of several seeds the means.
    """
    runs_by_place: dict[int, list[Mapping[str, Any]]] = {}
    thesis_runs = paper_table("thesis-runs")
    swept = results(SWEEP)
    for run in swept.get("runs", ()):
        if run["state"] == "finished":
            for place, row in enumerate(thesis_runs.rows):
                if thesis_runs.fits(row, run["settings"]):
                    runs_by_place.setdefault(place, []).append(run)
    return {place: _mean(runs, processors_of(swept, runs)) for place, runs in runs_by_place.items()}


def _mean(runs: Sequence[Mapping[str, Any]], processors: frozenset[str]) -> Ours:
    windows = [
        1000 * run["cpu_seconds"] / run["updates"] / BATCH for run in runs if run.get("cpu_seconds")
    ]
    accuracy, f1 = (
        fmean(run["final"][name] for run in runs) for name in ("accuracy", "f1_weighted")
    )
    times = [run.get("cpu_seconds", run["seconds"]) for run in runs]
    return Ours(accuracy, f1, fmean(times), fmean(windows) if windows else None, processors)


def place_of(number: int, row: Row) -> int:
    """Return which of the 52 runs a row of a table shows.

    Equal settings, where the row names them, and equal figures.
    """
    devices = {"CPU": "Xeon", "Intel Xeon CPU": "Xeon"}
    device = row.get("device", row.get("hardware"))
    keys = [
        key
        for key in (
            "deep_layers",
            "residual_layers",
            "hidden",
            "learning_rate",
            "bidirectional",
            "framework",
        )
        if key in row
    ]
    for place, run in enumerate(paper_table("thesis-runs").rows):
        apart = abs(row["seconds"] - run["seconds"])
        if (
            str(number) in run["tables"].split(", ")
            and all(row[key] == run[key] for key in keys)
            and (device is None or devices.get(str(device), device) == run["device"])
            and (apart <= 1 or row["time"] in str(run["other_times"]))
        ):
            return place
    raise ValueError(f"Table {number}: no run for {dict(row)}")


def measured(number: int, row: Row, place: int) -> Ours | None:
    """Return ours for a row: on emulated Pis, in PyTorch, or the training of the sweep."""
    if number == 21 and "Raspberry" in row["hardware"]:
        return _of_rows(
            results(PIS_TRAINED),
            lambda training: training["hidden"] == row["hidden"] and training["workers"] == 16,
        )
    if number == 20:
        if row["framework"] == "PyTorch":
            contestant = "pytorch"
        else:
            contestant = "ours single"
        twin = _of_rows(
            twin_rows(),
            lambda training: (
                training["contestant"] == contestant and training["hidden"] == row["hidden"]
            ),
        )
        if twin is not None or contestant == "pytorch":
            return twin
    return trained().get(place)


def twin_rows() -> Mapping[str, Any]:
    """The rows of all files of the twins, a width each, and the processor of each row."""
    rows = []
    for name in names_of(TWINS):
        measurements = results(name)
        (processor,) = processors_of(measurements, [{}]) or [None]
        rows += [
            {"processor": processor, **row, "seconds": row["train_seconds"]}
            for row in measurements["rows"]
        ]
    return {"rows": rows}


def _of_rows(
    measurements: Mapping[str, Any], fits: Callable[[Mapping[str, Any]], bool]
) -> Ours | None:
    rows = [row for row in measurements.get("rows", ()) if fits(row)]
    if not rows:
        return None
    windows = [
        1000 * row["seconds"] / _epochs(row["epochs"]) / WINDOWS_HERE
        for row in rows
        if row.get("epochs")
    ]
    accuracy, seconds = (fmean(row[key] for row in rows) for key in ("accuracy", "seconds"))
    return Ours(
        accuracy,
        None,
        seconds,
        fmean(windows) if windows else None,
        processors_of(measurements, rows),
    )


def _epochs(epochs: int | Sequence[float]) -> int:
    """Count the epochs: a run on Pis has the speed of each instead."""
    if isinstance(epochs, int):
        return epochs
    return len(epochs)
