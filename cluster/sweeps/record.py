"""`sweep.json`: how each run of a sweep stands.

Written whole after each change, and read back strictly.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, Field, TypeAdapter

from cluster.pages.sweep_files import FILE, SCHEMA, read_as
from cluster.sweeps.sweep_file import Axis, Placement
from core.atomic_write import atomic_write

RunState = Literal["waiting", "running", "finished", "failed", "pruned"]
RUN_STATES: tuple[RunState, ...] = get_args(RunState)
SweepState = Literal["running", "finished", "cancelled", "failed"]
OVER: frozenset[RunState] = frozenset({"finished", "failed", "pruned"})
"""A run in one of these states never runs again."""

LONGEST_ERROR = 2000
MOST_FIGURES = 100
LONGEST_FIGURE_NAME = 100
LARGEST_FIGURE = 1e100


def _inside(folder: str) -> str:
    if folder.startswith("/") or ".." in Path(folder).parts:
        raise ValueError(f"{folder!r:.80} is no folder of the sweep")
    return folder


@dataclass(frozen=True)
class RunRecord:
    """One run. `settings` are its own, by key; `final` is that of its result, null before the end.

    `seconds` are those that nodes spent on it, lost work included; `folder` is relative to the
    sweep's.
    """

    id: Annotated[str, Field(pattern="^[0-9]{1,9}$")]
    """It becomes the name of a folder."""
    settings: Mapping[str, Any]
    seed: int
    state: RunState = "waiting"
    final: Mapping[str, float | None] | None = None
    seconds: float = 0.0
    node: str | None = None
    folder: Annotated[str, AfterValidator(_inside)] | None = None
    error: str | None = None
    selected: Mapping[str, float | None] | None = None
    """Figures of the selected epoch on the validation, from its result; what may choose among
    settings."""


@dataclass(frozen=True)
class SweepRecord:
    """All runs of a sweep; `id` is the name of its folder."""

    name: str
    id: str
    state: SweepState
    placement: Placement
    seeds: tuple[int, ...]
    axes: tuple[Axis, ...]
    runs: tuple[RunRecord, ...]

    def with_run(self, changed: RunRecord) -> Self:
        """Return the record with one run changed, or added behind the others."""
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


def figures_of_node(given: Any) -> dict[str, float | None]:
    """What a node says of a run's figures: printable names, numbers that JSON has a word for.

    Others are left out: the sweep's files and pages could not hold them.
    """
    if not isinstance(given, dict):
        return {}
    plain = (
        (name, value)
        for name, value in given.items()
        if str(name).isprintable()
        and len(name) <= LONGEST_FIGURE_NAME
        and (value is None or (type(value) in (int, float) and abs(value) <= LARGEST_FIGURE))
    )
    return dict(islice(plain, MOST_FIGURES))


def read_record(folder: Path) -> SweepRecord:
    """Read `sweep.json` of a sweep's folder.

    Raises UsageError, which names the file, for anything else.
    """
    return read_as(folder, _RECORD)


_RECORD = TypeAdapter(SweepRecord)
