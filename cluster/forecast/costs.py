"""What roles cost on the machine that will coordinate, as `fab app check --out` measured it. Pure.

A file of costs has one entry for each app, mode and codec.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, linear_regression
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, TypeAdapter, ValidationError

from core.ground.errors import ClusterError, UsageError, reason_of
from core.ground.files import atomic_write, read_object
from core.inventory.extensions import MODES, ModeFacts
from core.inventory.slots import MOST_SLOTS

if TYPE_CHECKING:
    from core.inventory.training import TrainJob

SCHEMA = 1
LARGEST_FILE = 1 << 20

_Count = Annotated[int, Field(strict=True, ge=1, le=10**12)]
_Slots = Annotated[int, Field(strict=True, ge=1, le=MOST_SLOTS)]
_Bytes = Annotated[float, Field(ge=0.0, le=1e15, allow_inf_nan=False)]
_Amount = Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)]
_Seconds = Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)]
_Word = Annotated[str, Field(max_length=200)]


@dataclass(frozen=True)
class RolesRun:
    """A short training on `workers` workers: its wall time, and processor seconds by kind of role.

    `sent_bytes` and `received_bytes` are those of the parameter servers.
    """

    workers: _Count
    updates: _Count
    seconds: _Seconds
    coordinator_seconds: _Amount
    server_seconds: _Amount
    worker_seconds: _Amount
    sent_bytes: _Bytes
    received_bytes: _Bytes
    slots: _Slots
    updates_an_epoch: _Count
    spread: _Amount
    """Deviation of a call's seconds over their median, if there is one worker."""


@dataclass(frozen=True)
class MeasuredCosts:
    """Runs of one training on several numbers of workers, and what it is a part of."""

    app: _Word
    mode: _Word
    codec: _Word
    options: Mapping[str, Any]
    """The mode's section of `jobs.train`."""
    processor: _Word
    cores: _Count
    servers: _Count
    batch_size: _Count
    epochs: _Count
    single_seconds: _Seconds
    """Seconds of a batch in mode `single` on this machine."""
    runs: Annotated[tuple[RolesRun, ...], Field(min_length=1, max_length=64)]
    several: bool = False
    """Whether a call does several updates where they are short."""

    def __post_init__(self) -> None:
        """Raises ValueError for no mode or other options, and without a run of one worker."""
        if self.mode not in MODES or not MODES[self.mode].needs_roles():
            raise ValueError(f"mode: {self.mode!r} is no mode on roles")
        if self.alone.workers != 1:
            raise ValueError("runs: expected one of one worker")
        try:
            self.mode_options  # noqa: B018  it validates
        except ValidationError as problem:
            first = problem.errors()[0]
            where = ".".join(map(str, ("options", *first["loc"])))
            raise ValueError(f"{where}: {first['msg']}") from None

    @property
    def facts(self) -> type[ModeFacts]:
        """The facts of the mode."""
        return MODES[self.mode]

    @property
    def mode_options(self) -> Any:
        """The options of the mode; None for a mode without any."""
        if self.facts.Options is None:
            return None
        return self.facts.Options.model_validate(self.options)

    def is_for(self, app: str | None, mode: str | None, codec: str | None) -> bool:
        """Return whether these words are its own; None fits any."""
        return (app or self.app, mode or self.mode, codec or self.codec) == (
            self.app,
            self.mode,
            self.codec,
        )

    @property
    def in_parts(self) -> bool:
        """Whether an update is several calls, so that costs grow with calls, not with workers."""
        return self.facts.shares_batches() and self.facts.parameters == "servers"

    @property
    def alone(self) -> RolesRun:
        """The run of one worker."""
        return min(self.runs, key=lambda run: run.workers)

    @property
    def slots(self) -> int:
        """Slots of an update."""
        return self.alone.slots

    def waves(self, slots: int) -> int:
        """Return the rounds in which a worker computes so many slots, one a core at a time."""
        if self.in_parts:
            return -(-slots // self.cores)
        return 1

    def scale(self, run: RolesRun) -> float:
        """Return what the costs of a run grow with: calls of an update, or workers.

        Each call pulls and pushes as much, and one worker computes a step in one.
        """
        if not self.in_parts or not self.alone.sent_bytes:
            return float(run.workers)
        return max(1.0, run.sent_bytes / run.updates / (self.alone.sent_bytes / self.alone.updates))

    @property
    def windows(self) -> int:
        """Windows of one update."""
        return self.batch_size * self.facts.batches(self.mode_options)


@dataclass(frozen=True)
class Line:
    """A cost of an update: `base + slope * x`, where x is its calls, or the workers."""

    base: float
    slope: float

    def at(self, x: float) -> float:
        """Return the cost."""
        return self.base + self.slope * x

    @classmethod
    def through(cls, points: Sequence[tuple[float, float]]) -> Self:
        """Return the line with the least squares of errors; neither part is negative."""
        xs = [x for x, _ in points]
        costs = [cost for _, cost in points]
        if len(set(xs)) == 1:
            return cls(fmean(costs), 0.0)
        slope, base = linear_regression(xs, costs)
        if slope < 0:
            return cls(fmean(costs), 0.0)
        if base < 0:
            slope, base = linear_regression(xs, costs, proportional=True)
        return cls(base, slope)


@dataclass(frozen=True)
class FittedCosts:
    """The parameters of the simulation, in seconds and bytes."""

    coordinator: Line
    """Seconds of an update on the coordinator."""
    server: Line
    """Seconds of an update on all servers together."""
    compute: float
    """Seconds of a whole update's gradients on one worker."""
    call: float
    """Seconds of a worker for each call, whatever part of an update it computes."""
    pull_bytes: float
    push_bytes: float
    """Bytes of one call."""
    largest: int
    """The most workers among the runs."""


def fitted(costs: MeasuredCosts, largest: int | None = None) -> FittedCosts:
    """Fit the costs to the runs of at most `largest` workers.

    Processor seconds by role do not depend on what else the machine did, so the workers may share
    it. One worker alone gives the wall time of what it computes: what neither coordinator nor
    server took.
    """
    runs = [run for run in costs.runs if largest is None or run.workers <= largest]
    alone = costs.alone

    def line(seconds: str) -> Line:
        return Line.through(
            [(costs.scale(run), getattr(run, seconds) / run.updates) for run in runs]
        )

    of_worker = alone.seconds - alone.coordinator_seconds - alone.server_seconds / costs.servers
    of_worker = max(0.0, of_worker) / alone.updates
    call = 0.0
    if costs.in_parts:
        # The processor seconds of a step on all workers grow by what a call costs each of them.
        worker = line("worker_seconds")
        call = of_worker * worker.slope / max(1e-12, worker.at(1.0))
    return FittedCosts(
        line("coordinator_seconds"),
        line("server_seconds"),
        of_worker - call,
        call,
        alone.sent_bytes / alone.updates,
        alone.received_bytes / alone.updates,
        max(run.workers for run in runs),
    )


def app_of(train: "TrainJob") -> str:
    """Return the word for what a training trains: its app, else its network."""
    if train.app is None:
        return train.model.name
    return Path(train.app).stem


_ENTRIES = TypeAdapter(tuple[MeasuredCosts, ...])
REMEDY = "`fab app check APP --out FILE` measures and writes it"


def read_costs(path: Path) -> tuple[MeasuredCosts, ...]:
    """Return the entries of a file of costs. Raises UsageError for anything else."""
    try:
        return _ENTRIES.validate_python(read_object(path, LARGEST_FILE, SCHEMA).get("measured"))
    except OSError as problem:
        raise UsageError(f"{path}: no costs ({reason_of(problem)}): {REMEDY}") from None
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"{path}: no file of costs: {where}: {first['msg']}: {REMEDY}") from None
    except ValueError as problem:
        raise UsageError(f"{path}: no file of costs: {problem}: {REMEDY}") from None


def refuse_unless_costs(path: Path) -> None:
    """Raise UsageError unless the file can be one of costs: it is one, or a new one."""
    if path.exists():
        read_costs(path)
    elif not path.parent.is_dir():
        raise UsageError(f"{path}: its folder does not exist: make it, or name another file")


def add_costs(path: Path, costs: MeasuredCosts) -> None:
    """Write the costs into the file, in place of earlier ones of the same app, mode and codec.

    Raises UsageError if the file is none of costs, ClusterError if it cannot be written.
    """
    refuse_unless_costs(path)
    entries = [costs]
    key = (costs.app, costs.mode, costs.codec)
    if path.exists():
        entries = [entry for entry in read_costs(path) if not entry.is_for(*key)] + entries
    document = {"schema": SCHEMA, "measured": [asdict(entry) for entry in entries]}
    try:
        atomic_write(path, json.dumps(document, indent=1).encode() + b"\n")
    except OSError as problem:
        raise ClusterError(f"{path}: cannot be written: {reason_of(problem)}") from None


def entry_of(path: Path, app: str | None, mode: str | None, codec: str | None) -> MeasuredCosts:
    """Return the latest entry with these words; None fits any, but of one app alone.

    Raises UsageError.
    """
    entries = read_costs(path)
    fitting = [entry for entry in entries if entry.is_for(app, mode, codec)]
    apps = dict.fromkeys(entry.app for entry in fitting)
    if len(apps) > 1:
        raise UsageError(f"{path}: has costs of {', '.join(apps)}: name one with --app")
    if fitting:
        return fitting[-1]
    missing = " ".join(filter(None, (app, mode, codec)))
    measured = (
        "; ".join(f"{entry.app} {entry.mode} {entry.codec}" for entry in entries) or "nothing"
    )
    raise UsageError(f"{path}: no costs of {missing}, only of: {measured}: {REMEDY}")
