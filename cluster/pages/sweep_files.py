"""`sweep.json` of a sweep's folder as pages read it: typed and bounded, as it may be foreign."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter

from core.errors import UsageError, reason_of
from core.json_file import read_object
from core.status.parts import Count, Name, Number, Seconds, Text

FILE = "sweep.json"
SCHEMA = 1
MAXIMUM_BYTES = 64 << 20
MOST_RUNS = 100_000
HELD_OUT = "held-out accuracy"

Settings = Annotated[Mapping[Name, Any], Field(max_length=200)]


@dataclass(frozen=True)
class StoredSweepRun:
    """One run of a sweep. `settings` are its own, by key as `--set` takes it."""

    id: Name
    settings: Settings
    seed: Count
    state: Name = "waiting"
    final: Annotated[Mapping[Name, Number | None], Field(max_length=100)] | None = None
    """The figures of its test, as in `result.json`."""
    selected: Annotated[Mapping[Name, Number | None], Field(max_length=100)] | None = None
    """The figures of the selected epoch on what was held out."""
    seconds: Seconds | None = None
    node: Name | None = None
    folder: Text | None = None
    error: Text | None = None

    @property
    def key(self) -> str:
        """What runs have in common that differ in their seed alone."""
        return json.dumps(self.settings, sort_keys=True)


@dataclass(frozen=True)
class VariedSetting:
    """A setting in which runs differ, and its values in their order."""

    key: Name
    values: Annotated[tuple[Any, ...], Field(max_length=MOST_RUNS)]


@dataclass(frozen=True)
class SweepGroup:
    """Runs of one sweep that differ in their seed alone; a seed counts once."""

    settings: Mapping[str, Any]
    runs: tuple[StoredSweepRun, ...]

    @cached_property
    def ended(self) -> tuple[StoredSweepRun, ...]:
        """Return the runs with figures, by seed."""
        by_seed = {
            run.seed: run
            for run in reversed(self.runs)
            if run.state == "finished" and run.final is not None
        }
        return tuple(by_seed[seed] for seed in sorted(by_seed))

    def values(self, figure: str) -> list[float]:
        """Return a figure of each run that has it.

        `seconds` is the time of the run, `HELD_OUT` what may choose a setting.
        """
        if figure == "seconds":
            return [run.seconds for run in self.ended if run.seconds]
        if figure == HELD_OUT:
            found = [(run.selected or {}).get("accuracy") for run in self.ended]
            return [value for value in found if value is not None]
        found = [(run.final or {}).get(figure) for run in self.ended]
        return [value for value in found if value is not None]

    def mean(self, figure: str) -> float | None:
        """Over the seeds."""
        if values := self.values(figure):
            return fmean(values)
        return None

    def spread(self, figure: str) -> float | None:
        """The sample standard deviation over the seeds; None of fewer than two."""
        if len(values := self.values(figure)) > 1:
            return stdev(values)
        return None


@dataclass(frozen=True)
class StoredSweep:
    """A sweep as far as it has come."""

    name: Name
    id: Name
    state: Name
    placement: Name
    seeds: Annotated[tuple[Count, ...], Field(max_length=MOST_RUNS)]
    axes: Annotated[tuple[VariedSetting, ...], Field(max_length=200)]
    runs: Annotated[tuple[StoredSweepRun, ...], Field(max_length=MOST_RUNS)]
    base: Settings = field(default_factory=dict)

    @cached_property
    def groups(self) -> tuple[SweepGroup, ...]:
        """The runs by their settings, in the order of the sweep."""
        found: dict[str, list[StoredSweepRun]] = {}
        for run in self.runs:
            found.setdefault(run.key, []).append(run)
        return tuple(SweepGroup(runs[0].settings, tuple(runs)) for runs in found.values())

    @property
    def varied(self) -> tuple[VariedSetting, ...]:
        """The axes; of a sweep without them, what its runs set, with the values of each."""
        if self.axes:
            return self.axes
        found = []
        for key in dict.fromkeys(key for run in self.runs for key in run.settings):
            values = [run.settings.get(key) for run in self.runs]
            found.append(
                VariedSetting(key, tuple({json.dumps(one): one for one in values}.values()))
            )
        return tuple(found)


_SWEEP = TypeAdapter(StoredSweep)
Shape = TypeVar("Shape")


def is_sweep(folder: Path) -> bool:
    """Whether the folder is a sweep's."""
    return (folder / FILE).is_file()


def read_sweep(folder: Path) -> StoredSweep:
    """Read `sweep.json` of the folder. Raises as `read_as` does."""
    return read_as(folder, _SWEEP)


def read_as(folder: Path, shape: TypeAdapter[Shape]) -> Shape:
    """Read `sweep.json` of the folder, which may be foreign, as an object of this shape.

    Raises UsageError, which names the file, for anything else.
    """
    path = folder / FILE
    try:
        return shape.validate_python(read_object(path, MAXIMUM_BYTES, SCHEMA))
    except FileNotFoundError:
        raise UsageError(
            f"{folder}: expected the folder of a sweep, found no {FILE} in it"
        ) from None
    except (OSError, ValueError) as problem:
        raise UsageError(
            f"{path}: expected what `fab sweep` writes, got {reason_of(problem)}"
        ) from None
