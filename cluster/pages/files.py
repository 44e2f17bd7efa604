"""The files of a run or a sweep for people: what their reports are drawn from.

`sweep.json` says how each run of a sweep stands. It is written whole after each change, and read
back strictly, typed and bounded: it may be foreign.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, Field, TypeAdapter

from core.ground.errors import UsageError, reason_of
from core.ground.files import atomic_write, json_object, read_object
from core.status.parts import Count, Name, Number, Seconds, Text
from core.status.past_run import read_with_result
from core.status.view import RunView

ENVIRONMENT = "environment.json"
REPORT = "report.html"


@dataclass(frozen=True)
class StoredRun:
    """One run, from the files of its folder alone."""

    folder: Path
    view: RunView
    result: Mapping[str, Any] = field(default_factory=dict)
    """`result.json`, empty if there is none, or another coordinator has continued since."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """`environment.json`, empty if there is none."""

    @property
    def name(self) -> str:
        """Return the id of the run, its folder's name."""
        return self.view.run or self.folder.name


def run_of(folder: Path) -> StoredRun:
    """The run in `folder`. Raises UsageError if the folder holds none."""
    view, result = read_with_result(folder)
    return StoredRun(folder, view, result, json_object(folder / ENVIRONMENT) or {})


FILE = "sweep.json"
SCHEMA = 1
MAXIMUM_BYTES = 64 << 20
MOST_RUNS = 100_000
HELD_OUT = "held-out accuracy"

Placement = Literal["node", "cluster"]
RunState = Literal["waiting", "running", "finished", "failed", "pruned"]
RUN_STATES: tuple[RunState, ...] = get_args(RunState)
SweepState = Literal["running", "finished", "cancelled", "failed"]
OVER: frozenset[RunState] = frozenset({"finished", "failed", "pruned"})
"""A run in one of these states never runs again."""

Settings = Annotated[Mapping[Name, Any], Field(max_length=200)]
RunFigures = Annotated[Mapping[Name, Number | None], Field(max_length=100)]


def _inside(folder: str) -> str:
    if folder.startswith("/") or ".." in Path(folder).parts:
        raise ValueError(f"{folder!r:.80} is no folder of the sweep")
    return folder


@dataclass(frozen=True)
class RunRecord:
    """One run. `settings` are its own, by key as `--set` takes it.

    `seconds` are those that nodes spent on it, lost work included; `folder` is relative to the
    sweep's.
    """

    id: Annotated[str, Field(pattern="^[0-9]{1,9}$")]
    """Name of its folder."""
    settings: Settings
    seed: Count
    state: RunState = "waiting"
    final: RunFigures | None = None
    """The figures of its test, as in `result.json`; null before the end."""
    seconds: Seconds = 0.0
    node: Name | None = None
    folder: Annotated[Text, AfterValidator(_inside)] | None = None
    error: Text | None = None
    selected: RunFigures | None = None
    """Figures of the selected epoch on the validation, from its result; what may choose among
    settings."""

    @property
    def figures(self) -> Mapping[str, float | None]:
        """Figures of its test, its `seconds`, and as `HELD_OUT` what may choose a setting."""
        time_and_choice = {
            "seconds": self.seconds or None,
            HELD_OUT: (self.selected or {}).get("accuracy"),
        }
        return {**(self.final or {}), **time_and_choice}


@dataclass(frozen=True)
class Axis:
    """A setting in which runs differ, and its values in their order."""

    key: Name
    values: Annotated[tuple[Any, ...], Field(max_length=MOST_RUNS)]


@dataclass(frozen=True)
class SweepGroup:
    """Runs of one sweep that differ in their seed alone; a seed counts once."""

    settings: Mapping[str, Any]
    runs: tuple[RunRecord, ...]

    @cached_property
    def ended(self) -> tuple[RunRecord, ...]:
        """Return the runs with figures, by seed."""
        by_seed = {
            run.seed: run
            for run in reversed(self.runs)
            if run.state == "finished" and run.final is not None
        }
        return tuple(by_seed[seed] for seed in sorted(by_seed))

    def values(self, figure: str) -> list[float]:
        """Return a figure of each run that has it."""
        figures = (run.figures.get(figure) for run in self.ended)
        return [value for value in figures if value is not None]

    def mean(self, figure: str) -> float | None:
        """The mean over the seeds."""
        if values := self.values(figure):
            return fmean(values)
        return None

    def spread(self, figure: str) -> float | None:
        """The sample standard deviation over the seeds; None of fewer than two."""
        if len(values := self.values(figure)) > 1:
            return stdev(values)
        return None


@dataclass(frozen=True)
class SweepRecord:
    """All runs of a sweep; `id` is the name of its folder."""

    name: Name
    id: Name
    state: SweepState
    placement: Placement
    seeds: Annotated[tuple[Count, ...], Field(max_length=MOST_RUNS)]
    axes: Annotated[tuple[Axis, ...], Field(max_length=200)]
    runs: Annotated[tuple[RunRecord, ...], Field(max_length=MOST_RUNS)]

    def with_run(self, changed: RunRecord) -> Self:
        """Return the record with one run changed, or added behind the others."""
        is_listed = any(run.id == changed.id for run in self.runs)
        runs = tuple(changed if run.id == changed.id else run for run in self.runs)
        return replace(self, runs=runs if is_listed else (*runs, changed))

    def counts(self) -> dict[RunState, int]:
        """Count the runs in each state."""
        runs_in_state = Counter(run.state for run in self.runs)
        return {state: runs_in_state[state] for state in RUN_STATES}

    def to_json(self) -> dict[str, Any]:
        """The content of `sweep.json`."""
        return {"schema": SCHEMA, **asdict(self)}

    def write(self, folder: Path) -> None:
        """Write `sweep.json` into the sweep's folder, whole. Raises ClusterError."""
        text = json.dumps(self.to_json(), indent=1, allow_nan=False)
        atomic_write(folder / FILE, text.encode() + b"\n")

    @cached_property
    def groups(self) -> tuple[SweepGroup, ...]:
        """The runs by their settings, in the order of the sweep."""
        runs_of: dict[str, list[RunRecord]] = {}
        for run in self.runs:
            runs_of.setdefault(json.dumps(run.settings, sort_keys=True), []).append(run)
        return tuple(SweepGroup(runs[0].settings, tuple(runs)) for runs in runs_of.values())

    @property
    def varied(self) -> tuple[Axis, ...]:
        """The axes; of a sweep without them, what its runs set, with the values of each."""
        if self.axes:
            return self.axes
        axes = []
        for key in dict.fromkeys(key for run in self.runs for key in run.settings):
            values = [run.settings.get(key) for run in self.runs]
            axes.append(Axis(key, tuple({json.dumps(value): value for value in values}.values())))
        return tuple(axes)


_SWEEP = TypeAdapter(SweepRecord)


def is_sweep(folder: Path) -> bool:
    """Whether the folder is a sweep's."""
    return (folder / FILE).is_file()


def read_sweep(folder: Path) -> SweepRecord:
    """Read `sweep.json` of the folder, which may be foreign.

    Raises UsageError, which names the file, for anything else.
    """
    path = folder / FILE
    try:
        return _SWEEP.validate_python(read_object(path, MAXIMUM_BYTES, SCHEMA))
    except FileNotFoundError:
        raise UsageError(
            f"{folder}: expected the folder of a sweep, found no {FILE} in it"
        ) from None
    except (OSError, ValueError) as problem:
        raise UsageError(
            f"{path}: expected what `fab sweep` writes, got {reason_of(problem)}"
        ) from None
