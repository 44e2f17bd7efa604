"""What happens in a run, as frozen events. A job emits them; terminal, metrics, page, report and history consume them.

`history.KEPT` names the events that `history.jsonl` holds. The others come too often for a file, or concern the
present alone; `Sampled` and `Counted` sum them up. Seconds count from the start of the run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from cluster.status.classes import by_class
from cluster.status.parts import (
    CLASSIFICATION,
    ClassCount,
    Count,
    Figures,
    MixUp,
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
from cluster.status.view import PiPoint, ProgressView, SampleView, SpanView, SweepView


@dataclass(frozen=True)
class Began:
    """A coordinator begins; the first event of a run. `mode` and `model` are null where nothing is trained.

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
    """The job has its folder, whose name is the id of the run. `parameters`: values that are trained.

    `unit`: its workers work off `windows` or `examples`. `task_type`: `classification`, `multilabel` or `regression`.
    """

    run: Name
    job: Name
    parameters: Count | None = None
    unit: Annotated[Name, Field(min_length=1)] = "windows"
    task_type: Name = CLASSIFICATION


@dataclass(frozen=True)
class Resumed:
    """Another coordinator continues the run. `last_seconds`: the last sign of life of the one before it."""

    last_seconds: Seconds


@dataclass(frozen=True)
class Restored:
    """A training continues from a checkpoint with these numbers of finished epochs. Later ones are trained again."""

    train_epochs: Count
    refit_epochs: Count


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
    """A stage begins: `train`, `refit`, `test`, `pi`, or words for a person. `total` is 0 where it is unknown."""

    name: Name
    total: Count = 0
    unit: Name = ""


@dataclass(frozen=True)
class Advanced:
    """Units of the present stage that are done."""

    done: int


@dataclass(frozen=True)
class Validating:
    """The stage waits while the model is evaluated on held-out people (true), and continues after it (false)."""

    begins: bool


@dataclass(frozen=True)
class BatchesCut:
    """Each batch of the training is computed in this many micro-batches."""

    micro_batches: Annotated[int, Field(ge=1, lt=2**31)]


@dataclass(frozen=True)
class Planned:
    """A fit of `epochs` epochs begins, or continues after `epochs_done` of them."""

    epochs: Count
    epochs_done: Count
    rate: Number


@dataclass(frozen=True)
class Stepped:
    """A worker has computed a step, or its part of one.

    `staleness` is in updates. `part_seconds`: pull, compute, push, and wait, which is the rest of
    `round_trip_seconds`, the time from the dispatch to the reply.
    """

    task: int
    windows: int
    staleness: float
    round_trip_seconds: float
    part_seconds: Mapping[str, float]


@dataclass(frozen=True)
class Updated:
    """An update is complete: `done` of `total` of its fit. `loss` is the mean of its batches.

    `windows_per_second` is that of the present stretch.
    """

    id: int
    done: int
    total: int
    loss: float
    rate: float
    windows_per_second: float


@dataclass(frozen=True)
class EpochEnded:
    """An epoch is finished. Loss and accuracy are those of its batches as they were trained.

    `accuracy` is null where the task has none. `rate` is the learning rate of its last update; `validation` is null
    where nothing was held out.
    """

    stage: Name
    epoch: Count
    loss: Number
    accuracy: Number | None
    rate: Number
    windows_per_second: Number
    seconds_left: Seconds
    validation: Figures | None


@dataclass(frozen=True)
class FiguresComputed:
    """The model was evaluated on `split`, `validation` or `test`. `rows`: examples by true and predicted class.

    `labels` and `rows` are empty where there is no such matrix: of a regression, of several labels at once, and of more
    classes than a person can read. `counts` has each label then, as far as known, `mix_ups` what came most often.
    """

    split: Name
    figures: Figures
    labels: tuple[Name, ...] = ()
    rows: tuple[tuple[Count, ...], ...] = ()
    epoch: Count | None = None
    counts: tuple[ClassCount, ...] = ()
    mix_ups: tuple[MixUp, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError where the matrix does not have a row and a column for each label."""
        for name, value in vars(by_class(self.labels, self.rows, self.counts, self.mix_ups)).items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class StoppedEarly:
    """A fit ends after `epoch`, because its held-out figures have not got better for `patience` epochs.

    `best_epoch` is the one whose parameters are used.
    """

    stage: Name
    epoch: Count
    best_epoch: Count
    patience: Count

    def why(self) -> str:
        """In words."""
        return f"no better for {self.patience} epoch{'s' * (self.patience != 1)} (best: epoch {self.best_epoch})"


@dataclass(frozen=True)
class UpdatesCounted:
    """Updates in the whole surviving history, as the parameter servers count them."""

    applied: Count
    duplicates_dropped: Count
    rolled_back: Count
    resumptions: Count


@dataclass(frozen=True)
class TrafficCounted:
    """Bytes that the parameter servers sent and received over the latest `steps` steps."""

    sent_bytes: Count
    received_bytes: Count
    steps: Count


@dataclass(frozen=True)
class CheckpointWritten:
    """A checkpoint of the first `next_update` updates is on disk."""

    write_seconds: Seconds
    size_bytes: Count
    next_update: Count


@dataclass(frozen=True)
class Diverged:
    """The loss or a gradient is not finite, or far above that of guessing: the job ends."""

    reason: Text


@dataclass(frozen=True)
class Evaluated:
    """A worker has evaluated `windows` windows, in a job that does nothing else."""

    task: int
    windows: int
    round_trip_seconds: float


@dataclass(frozen=True)
class PointsDrawn:
    """A worker drew `samples` points; `drawn` and the estimate are those of the whole job so far."""

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
    """A worker joined, left, ...; `absent` and `working` are how it is first seen. `departures`: in this run."""

    task: Name
    change: Literal["absent", "working", "joined", "suspected", "answers", "left", "drained"]
    departures: Count = 0


@dataclass(frozen=True)
class RoleSeen:
    """A role process answers, or does not; rates are those of its own sockets, `busy` is of all its cores' time."""

    task: str
    answers: bool
    memory_bytes: int | None = None
    sent_bytes_per_second: float | None = None
    received_bytes_per_second: float | None = None
    processor: str | None = None
    busy: float | None = None


@dataclass(frozen=True)
class Sampled:
    """The run since the sample before: mean loss and staleness, windows (of pi: samples) a second, live workers."""

    loss: Number | None
    windows_per_second: Number
    staleness: Number | None
    workers: Mapping[Name, Number]
    live: Count

    def view(self, seconds: float) -> SampleView:
        """The entry of the picture."""
        return SampleView(seconds, self.loss, self.windows_per_second, self.staleness, dict(self.workers), self.live)


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
    """The state of each run of a sweep; every second or two, and not in the history: `sweep.json` has it."""

    sweep: SweepView


Event = (
    Began | Opened | Resumed | Restored | Ended | Noted | StageBegan | Advanced | Validating | BatchesCut | Planned
    | Stepped | Updated | EpochEnded | FiguresComputed | StoppedEarly | UpdatesCounted | TrafficCounted
    | CheckpointWritten | Diverged | Evaluated | PointsDrawn | Estimated | Calibrated | FaultInjected | Looked
    | WorkerChanged | RoleSeen | Sampled | TimelineKept | Counted | SweepMoved
)  # fmt: skip

Consumer = Callable[[Event], None]
Stamped = tuple[float, Event]
"""An event with its second."""
