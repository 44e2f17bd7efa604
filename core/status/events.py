"""What happens in a run, as frozen events, and their way from a job to their consumers.

A job emits them; terminal, metrics, page, report and history consume them.

`history.KEPT` names the events that `history.jsonl` holds. The others come too often for a file, or
concern the present alone; `SampleView` and `Counted` sum them up. Seconds count from the start of
the run.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from core.status.parts import (
    CLASSIFICATION,
    Count,
    Moment,
    Name,
    NodeTasks,
    Number,
    RoleCount,
    Seconds,
    Seen,
    Text,
    TrainCount,
)
from core.status.training_events import (
    BatchesCut,
    CheckpointWritten,
    Diverged,
    EpochEnded,
    FiguresComputed,
    Planned,
    Restored,
    Stepped,
    StoppedEarly,
    TrafficCounted,
    Updated,
    UpdatesCounted,
)
from core.status.view import PiPoint, ProgressView, SampleView, SpanView, SweepView


@dataclass(frozen=True)
class Began:
    """A coordinator begins; the first event of a run.

    `mode` and `model` are null where nothing is trained.

    `alone`: the coordinator computes by itself, without workers.
    """

    cluster: Name
    job: Name
    started: Moment
    nodes: tuple[NodeTasks, ...]
    mode: Name | None = None
    model: Name | None = None
    planned_samples: Count | None = None
    alone: bool = False
    schema: Literal[1] = 1


@dataclass(frozen=True)
class Opened:
    """The job has its folder, whose name is the id of the run.

    `parameters`: values that are trained.

    `unit`: its workers work off `windows` or `examples`. `task_type`: `classification`,
    `multilabel` or `regression`.
    """

    run: Name
    job: Name
    parameters: Count | None = None
    unit: Annotated[Name, Field(min_length=1)] = "windows"
    task_type: Name = CLASSIFICATION


@dataclass(frozen=True)
class Resumed:
    """Another coordinator continues the run.

    `last_seconds`: the last sign of life of the one before it.
    """

    last_seconds: Seconds


@dataclass(frozen=True)
class Ended:
    """The job has ended and its result is written."""

    state: Literal["done", "cancelled", "failed"]
    reason: Text | None = None


@dataclass(frozen=True)
class Noted:
    """A line for the event log that no other event says; `kind` is one of EventView's."""

    kind: Name
    text: Text


@dataclass(frozen=True)
class StageBegan:
    """A stage begins: `train`, `refit`, `test`, `pi`, or words for a person.

    `total` is 0 where it is unknown.
    """

    name: Name
    total: Count = 0
    unit: Name = ""


@dataclass(frozen=True)
class Advanced:
    """Units of the present stage that are done."""

    done: int


@dataclass(frozen=True)
class Validating:
    """The stage waits while the model is evaluated on held-out people, or continues after that.

    `begins` is true when the evaluation begins, false when it has ended.
    """

    begins: bool


@dataclass(frozen=True)
class Evaluated:
    """A worker has evaluated `windows` windows, in a job that does nothing else."""

    task: int
    windows: int
    round_trip_seconds: float


@dataclass(frozen=True)
class PointsDrawn:
    """A worker drew `samples` points.

    `drawn` and the estimate are those of the whole job so far.
    """

    task: int
    samples: int
    round_trip_seconds: float
    drawn: int
    estimate: float
    standard_error: float


@dataclass(frozen=True)
class Estimated:
    """An estimate of pi, kept each time the points have grown by 2 %."""

    point: PiPoint


@dataclass(frozen=True)
class Calibrated:
    """The pi job measured the speed of each worker: samples per second by task."""

    samples_per_second: Mapping[Name, Number]


@dataclass(frozen=True)
class SpeedsRead:
    """A training read the speeds that the latest pi job measured: samples per second by task."""

    samples_per_second: Mapping[str, float]


@dataclass(frozen=True)
class FaultInjected:
    """`--chaos` injects a fault."""

    fault: Name
    target: Name


@dataclass(frozen=True)
class Looked:
    """The workers as they are now, by task; twice a second, also where there are none."""

    workers: Mapping[str, Seen]


@dataclass(frozen=True)
class WorkerChanged:
    """A worker joined, left, ...; `absent` and `working` are how it is first seen.

    `departures`: in this run.
    """

    task: Name
    change: Literal["absent", "working", "joined", "suspected", "answers", "left", "drained"]
    departures: Count = 0


@dataclass(frozen=True)
class RoleSeen:
    """A role process answers, or does not.

    Rates are those of its own sockets; `busy` is a share of the time of all its cores.
    """

    task: str
    answers: bool
    memory_bytes: int | None = None
    sent_bytes_per_second: float | None = None
    received_bytes_per_second: float | None = None
    processor: str | None = None
    busy: float | None = None


@dataclass(frozen=True)
class TimelineKept:
    """The spans of one task, in a rewritten file; the last one has no end while it lasts."""

    task: Name
    spans: tuple[SpanView, ...]


@dataclass(frozen=True)
class Counted:
    """All that is only a number now: it stands for the steps and updates before it."""

    interval_seconds: Annotated[float, Field(gt=0.0, le=1e9)]
    progress: ProgressView | None
    roles: Mapping[Name, RoleCount]
    processors: Mapping[Name, Name | None]
    train: TrainCount | None
    estimate: PiPoint | None


@dataclass(frozen=True)
class SweepMoved:
    """The state of each run of a sweep, every second or two.

    The history leaves it out, because `sweep.json` has it.
    """

    sweep: SweepView


Event = (
    Began
    | Opened
    | Resumed
    | Restored
    | Ended
    | Noted
    | StageBegan
    | Advanced
    | Validating
    | BatchesCut
    | Planned
    | Stepped
    | Updated
    | EpochEnded
    | FiguresComputed
    | StoppedEarly
    | UpdatesCounted
    | TrafficCounted
    | CheckpointWritten
    | Diverged
    | Evaluated
    | PointsDrawn
    | Estimated
    | Calibrated
    | SpeedsRead
    | FaultInjected
    | Looked
    | WorkerChanged
    | RoleSeen
    | SampleView
    | TimelineKept
    | Counted
    | SweepMoved
)

Consumer = Callable[[Event], None]
Stamped = tuple[float, Event]
"""An event with its second."""

__all__ = [
    "Advanced",
    "BatchesCut",
    "Began",
    "Calibrated",
    "CheckpointWritten",
    "Consumer",
    "Counted",
    "Diverged",
    "Ended",
    "EpochEnded",
    "Estimated",
    "Evaluated",
    "Event",
    "FaultInjected",
    "FiguresComputed",
    "Looked",
    "Noted",
    "Opened",
    "Planned",
    "PointsDrawn",
    "Restored",
    "Resumed",
    "RoleSeen",
    "SpeedsRead",
    "StageBegan",
    "Stamped",
    "Stepped",
    "StoppedEarly",
    "SweepMoved",
    "TimelineKept",
    "TrafficCounted",
    "Updated",
    "UpdatesCounted",
    "Validating",
    "WorkerChanged",
]


log = logging.getLogger(__name__)


class EventStream:
    """Hands each event to every consumer.

    A consumer that raises is dropped with a warning and ends no job.

    Consumers run in the thread that emits: the job's own, but for `FaultInjected`, which any thread
    may emit.
    """

    def __init__(self, *consumers: Consumer) -> None:
        self._consumers: Iterable[Consumer] = consumers

    def add(self, consumer: Consumer) -> None:
        """Give `consumer` all events from now on."""
        self._consumers = (*self._consumers, consumer)

    def emit(self, event: Event) -> None:
        """Report an event."""
        for consumer in self._consumers:
            try:
                consumer(event)
            except Exception:
                owner = getattr(consumer, "__self__", consumer)
                name = getattr(owner, "__name__", type(owner).__name__)
                log.warning("%s failed and gets no more events", name, exc_info=True)
                self._consumers = tuple(other for other in self._consumers if other != consumer)
