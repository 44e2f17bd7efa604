"""`sweep.json`: how each run of a sweep stands. Written whole after each change, and read back strictly."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args

from cluster.atomic_write import atomic_write
from cluster.errors import UsageError
from cluster.json_file import read_object
from cluster.sweeps.sweep_file import PLACEMENTS, Axis, Placement

RunState = Literal["waiting", "running", "finished", "failed", "pruned"]
RUN_STATES: tuple[RunState, ...] = get_args(RunState)
SweepState = Literal["running", "finished", "cancelled", "failed"]
SWEEP_STATES: tuple[SweepState, ...] = get_args(SweepState)
OVER: frozenset[RunState] = frozenset({"finished", "failed", "pruned"})
"""A run in one of these states never runs again."""

FILE = "sweep.json"
SCHEMA = 1
MAXIMUM_BYTES = 64 << 20
LONGEST_ERROR = 2000
Word = TypeVar("Word")


@dataclass(frozen=True)
class RunRecord:
    """One run. `settings` are its own, by key; `final` is that of its result, null before the end.

    `seconds` are those that nodes spent on it, lost work included; `folder` is relative to the sweep's.
    """

    id: str
    settings: Mapping[str, Any]
    seed: int
    state: RunState = "waiting"
    final: Mapping[str, float | None] | None = None
    seconds: float = 0.0
    node: str | None = None
    folder: str | None = None
    error: str | None = None
    selected: Mapping[str, float | None] | None = None
    """Figures of the selected epoch on the validation, from its result; what may choose among settings."""


@dataclass(frozen=True)
class SweepRecord:
    """All runs of a sweep; `id` is the name of its folder."""

    name: str
    id: str
    state: SweepState
    placement: Placement
    seeds: tuple[int, ...]
    axes: tuple[Axis, ...]
    references: str | None
    runs: tuple[RunRecord, ...]

    def with_run(self, changed: RunRecord) -> Self:
        """The same with one run changed, or added behind the others."""
        known = any(run.id == changed.id for run in self.runs)
        runs = tuple(changed if run.id == changed.id else run for run in self.runs)
        return replace(self, runs=runs if known else (*runs, changed))

    def counts(self) -> dict[RunState, int]:
        """How many runs are in each state."""
        found = Counter(run.state for run in self.runs)
        return {state: found[state] for state in RUN_STATES}

    def to_json(self) -> dict[str, Any]:
        """The content of `sweep.json`."""
        return {"schema": SCHEMA, **asdict(self)}

    def write(self, folder: Path) -> None:
        """Write `sweep.json` into the sweep's folder, whole. Raises ClusterError."""
        text = json.dumps(self.to_json(), indent=1, allow_nan=False)
        atomic_write(folder / FILE, text.encode() + b"\n")


def read_record(folder: Path) -> SweepRecord:
    """Read `sweep.json` of a sweep's folder. Raises UsageError, which names the file, for anything else."""
    path = folder / FILE
    try:
        return _record(read_object(path, MAXIMUM_BYTES, SCHEMA))
    except FileNotFoundError:
        raise UsageError(f"{folder}: expected the folder of a sweep, found no {FILE} in it") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise UsageError(f"{path}: expected what `fab sweep` writes, got {type(problem).__name__}: {problem}") from None


def _record(found: Mapping[str, Any]) -> SweepRecord:
    axes = tuple(Axis(str(axis["key"]), tuple(axis["values"])) for axis in found["axes"])
    references = found["references"]
    return SweepRecord(
        str(found["name"]),
        str(found["id"]),
        _word(found["state"], SWEEP_STATES),
        _word(found["placement"], PLACEMENTS),
        tuple(int(seed) for seed in found["seeds"]),
        axes,
        None if references is None else str(references),
        tuple(_run(run) for run in found["runs"]),
    )


def _run(found: Mapping[str, Any]) -> RunRecord:
    final = found["final"]
    return RunRecord(
        _plain(found["id"]),
        dict(found["settings"]),
        int(found["seed"]),
        _word(found["state"], RUN_STATES),
        _figures(final),
        float(found["seconds"]),
        None if found["node"] is None else str(found["node"]),
        None if found["folder"] is None else _inside(found["folder"]),
        None if found["error"] is None else str(found["error"]),
        _figures(found.get("selected")),
    )


def _figures(found: Any) -> dict[str, float | None] | None:
    return (
        None if found is None else {str(key): None if value is None else float(value) for key, value in found.items()}
    )


def _word(value: object, words: tuple[Word, ...]) -> Word:
    for word in words:
        if value == word:
            return word
    raise ValueError(f"{value!r:.80} is none of {', '.join(map(str, words))}")


def _plain(value: object) -> str:
    """An id becomes the name of a folder."""
    if not isinstance(value, str) or not value.isascii() or not value.isdigit() or len(value) > 9:
        raise ValueError(f"{value!r:.80} is no id of a run")
    return value


def _inside(value: object) -> str:
    if not isinstance(value, str) or value.startswith("/") or ".." in Path(value).parts:
        raise ValueError(f"{value!r:.80} is no folder of the sweep")
    return value
