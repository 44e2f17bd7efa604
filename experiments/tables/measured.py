"""What was measured and what the papers printed, and how the published tables write figures.

The papers' tables are JSON in `papers/`. Our trainings stand beside them: which run stands in which
place. Times of two processors do not compare: each time has the sign of its own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from core.ground.files import read_json

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "experiments" / "results", ROOT / "benchmarks" / "results")
NOT_YET = "not measured"
NONE = "\N{EN DASH}"
SIGNS: Mapping[str, str] = {
    "Intel(R) Xeon(R) Processor": "\N{DAGGER}",
    "AMD EPYC": "\N{DOUBLE DAGGER}",
    "several processors": "\N{SECTION SIGN}",
}
"""Signs by the processor as Linux names it."""
SEVERAL = "several processors"


def results(name: str) -> Mapping[str, Any]:
    """Read a file of `FOLDERS`; it is empty if no folder has it yet."""
    for path in (folder / name for folder in FOLDERS):
        if path.exists():
            return dict(read_json(path))
    return {}


def names_of(pattern: str) -> list[str]:
    """The files that fit, by name."""
    return sorted(path.name for folder in FOLDERS for path in folder.glob(pattern))


def processors_of(
    measurements: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]
) -> frozenset[str]:
    """Return the processors of these rows of a file.

    It is the processor that a row names, else that of the whole file's machine.
    """
    usual = measurements.get("machine", {}).get("processor")
    return frozenset(name for row in rows if (name := row.get("processor") or usual))


def of_processor(time: str, processors: frozenset[str]) -> str:
    """A time with the sign of its processor; without one where that is not known.

    Raises ValueError for a processor that has no sign yet.
    """
    if not processors:
        return time
    if len(processors) > 1:
        name = SEVERAL
    else:
        name = next(iter(processors))
    if name not in SIGNS:
        raise ValueError(
            f"no sign for times of {name!r}: give it one in SIGNS of experiments/tables/measured.py"
        )
    return f"{time} {SIGNS[name]}"


def legend(text: str, subject: str) -> str:
    """Return what the signs in a text stand for, of the times of `subject`; empty without any."""
    entries = [f"{sign} {name}" for name, sign in SIGNS.items() if sign in text]
    if not entries:
        return ""
    return (
        f"Our times of {subject}:"
        f" {', '.join(entries)}{'; compare times of one sign alone' if len(entries) > 1 else ''}."
    )


def with_legend(markdown: str, subject: str) -> str:
    """A table, and below it what its signs stand for."""
    return "\n\n".join(part for part in (markdown, legend(markdown, subject)) if part)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [
        f"| {' | '.join(heads)} |",
        "|---" * len(heads) + "|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    return "\n".join(lines)


def clock(seconds: float) -> str:
    """Return `1:43:51`, as the thesis writes times."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def share(value: Any) -> str:
    """An accuracy or the like, a number or None."""
    if value is None:
        return NONE
    return f"{value:.4f}"


PAPERS = Path(__file__).with_name("papers")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper. `place` is its name there, such as `Table 6`."""

    place: str
    rows: Sequence[Row]
    settings: Mapping[str, Mapping[str, Any]]
    """Settings by column: the `key` of a training that it names, with the `default` of one that
    does not set it, and what a row means that has null there (`empty`)."""

    def fits(self, row: Row, settings: Mapping[str, Any]) -> bool:
        """Whether a row is of a training with these settings. A null without `empty` fits all."""
        for column, setting in self.settings.items():
            cell = row[column]
            if cell is None:
                cell = setting.get("empty")
            if cell is not None and settings.get(setting["key"], setting["default"]) != cell:
                return False
        return True


def paper_tables() -> list[str]:
    """The names of all tables."""
    return sorted(path.stem for path in PAPERS.glob("*.json"))


@cache
def paper_table(name: str) -> PaperTable:
    """A table by its name, such as `thesis-runs`."""
    content = read_json(PAPERS / f"{name}.json")
    return PaperTable(content["source"]["place"], content["rows"], content.get("settings", {}))


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
