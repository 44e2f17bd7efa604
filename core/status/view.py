"""The picture of a run: what `/api/status` answers, and what the page and the report draw.

Every field is plain data; `described` gives it as JSON. What is not known (yet) is None or empty.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from core.status.parts import (
    CLASSIFICATION,
    ClassCount,
    Count,
    MixUp,
    Name,
    Number,
    Seconds,
    TrainFigures,
)

SCHEMA = 1

JobState = Literal["preparing", "running", "done", "cancelled", "failed"]


@dataclass(frozen=True)
class RoleView:
    """One role process, as the coordinator sees it."""

    task: str
    """`worker:3`, `ps:0` or `coordinator:0`."""
    state: str
    """A worker's phase of membership; `up`, `lost` or `unknown` for others."""
    work: str | None = None
    """Its present work, e.g. `update 17`."""
    windows_per_second: float | None = None
    """Its speed; of pi samples per second."""
    windows: int = 0
    """Windows (pi: samples) it has processed in this run."""
    step_seconds: float | None = None
    """Median over its latest steps."""
    sent_bytes_per_second: float | None = None
    """Bytes over its own sockets, metrics apart."""
    received_bytes_per_second: float | None = None
    """Bytes over the same sockets."""
    memory_bytes: int | None = None
    """Anonymous memory of the process."""
    departures: int = 0
    """Times it left the cluster in this run."""
    busy: float | None = None
    """Share of its cores' time that it used lately, 0 to 1."""


@dataclass(frozen=True)
class NodeView:
    """One machine of the inventory with its role processes."""

    name: str
    """Its name in the inventory."""
    address: str
    """IPv4, as the other nodes reach it."""
    roles: tuple[RoleView, ...]
    """Roles on it."""
    processor: str | None = None
    """Its kind, as the role processes name it."""


@dataclass(frozen=True)
class ProgressView:
    """How far the present stage is."""

    stage: str
    """`preparing the recordings`, `train`, `refit`, `validation`, `test`, `pi` ..."""
    done: int
    """Units that are done."""
    total: int
    """Units of the stage; 0 where it is unknown."""
    unit: str
    """`updates`, `chunks`, `windows` ..."""


@dataclass(frozen=True)
class EpochView:
    """One finished epoch; figures of the validation set are None where nothing was held out."""

    stage: str
    """`train` or `refit`."""
    epoch: int
    """Its number, from 1."""
    loss: float
    """Mean training loss."""
    accuracy: float | None
    """Share of the training windows in this epoch; null where the task has none."""
    learning_rate: float
    """The learning rate of its last update."""
    windows_per_second: float
    """Speed over the epoch, without its validation."""
    seconds: float
    """Seconds since the run began."""
    validation_loss: float | None = None
    """The mean loss of the held-out windows."""
    validation_accuracy: float | None = None
    """Share of the held-out windows that were classified correctly."""
    validation_f1_macro: float | None = None
    """Mean of the F1 of each class on the held-out windows."""
    validation_others: dict[str, float] = field(default_factory=dict)
    """Further figures of the task or the app on the held-out windows, by name."""
    validation_precision_macro: float | None = None
    """Mean of the precision of each class on the held-out windows."""
    validation_recall_macro: float | None = None
    """Mean of the recall of each class on the held-out windows."""


@dataclass(frozen=True)
class SampleView:
    """The run at one moment, an event and a part of the picture.

    The time between two grows with the length of the run.
    """

    seconds: Seconds
    """Seconds since the run began."""
    loss: Number | None
    """Mean loss of the updates since the sample before."""
    windows_per_second: Number
    """Over the same time; of pi: samples."""
    staleness: Number | None
    """Mean over the same time, in updates."""
    workers: dict[Name, Number]
    """Windows (samples) per second of each worker."""
    live: Count
    """Workers in the cluster."""


@dataclass(frozen=True)
class SpanView:
    """A worker in one state, for the timeline; the last one has no end."""

    task: str
    """The role process: a worker, or the coordinator where it works alone."""
    state: str
    """`working`, `away` (absent, joining, drained) or `suspected` (suspect, slow, fenced)."""
    begin_seconds: float
    """Seconds since the run began."""
    end_seconds: float | None
    """Seconds since the run began; null while it lasts."""


@dataclass(frozen=True)
class EventView:
    """A line of the event log."""

    time: str
    """ISO 8601, UTC, milliseconds."""
    seconds: float
    """Seconds since the run began."""
    kind: str
    """`run`, `stage`, `checkpoint`, `resumed`, `fault`, `warning`; of a worker `joined`,
    `suspected`, `answers`, `left` or `drained`; at the end `done`, `cancelled` or `failed`."""
    text: str
    """Event in words."""


@dataclass(frozen=True)
class ConfusionView:
    """Rows are the true classes."""

    split: str
    """`validation` or `test`."""
    labels: tuple[str, ...]
    """Names of the classes."""
    rows: tuple[tuple[int, ...], ...]
    """Windows by true and predicted class."""
    epoch: int | None = None
    """The epoch whose model was evaluated."""


@dataclass(frozen=True)
class ClassesView:
    """What an evaluation found by class, where there is no confusion matrix.

    Labels have none, and very many classes.
    """

    split: str
    """`validation` or `test`."""
    counts: tuple[ClassCount, ...]
    """The counts of each class or label: at most 1,000."""
    mix_ups: tuple[MixUp, ...]
    """The most frequent mistakes, the most frequent first."""
    epoch: int | None = None
    """The epoch whose model was evaluated."""


@dataclass(frozen=True)
class StalenessView:
    """Updates by how stale they were, in updates.

    `counts[i]` of them lie above `bounds[i - 1]` and at most at `bounds[i]`.
    """

    bounds: tuple[int, ...]
    """Upper bounds in updates."""
    counts: tuple[int, ...]
    """Updates of each range, one more than `bounds`: the last is above all."""
    mean: Number | None
    """Mean in updates."""
    maximum: Number | None
    """Maximum in updates."""


@dataclass(frozen=True, kw_only=True)
class TrainView(TrainFigures):
    """What only a training has."""

    mode: str
    """Mode, e.g. `async`."""
    model: str
    """Name of the network."""
    parameters: int | None
    """Values that are trained."""
    step_parts_seconds: dict[str, float]
    """Mean seconds of the latest steps in `pull`, `compute`, `push` and `wait`."""
    epochs: tuple[EpochView, ...] = ()
    """Entries of the finished epochs."""
    staleness: StalenessView | None = None
    """Staleness of all updates."""
    pull_bytes_per_step: Number | None = None
    """Bytes that the parameter servers sent for a step, as their sockets count them."""
    push_bytes_per_step: Number | None = None
    """Bytes that they received for a step."""
    stopped_early: str | None = None
    """Reason for a fit's early end, e.g. `no better for 5 epochs (best: epoch 7)`."""


@dataclass(frozen=True)
class PiPoint:
    """The estimate after a number of samples and some time."""

    samples: int
    """Points drawn by then."""
    seconds: float
    """Seconds since the first of them was asked for."""
    estimate: float
    """The estimate of pi."""
    standard_error: float
    """The standard error of the estimate."""


@dataclass(frozen=True)
class PiView:
    """What only the pi job has."""

    planned_samples: int
    """Points of the whole job."""
    points: tuple[PiPoint, ...]
    """The estimate over time, denser at the beginning."""


@dataclass(frozen=True)
class SweepCellView:
    """One run of a sweep."""

    id: str
    """Its id in `sweep.json`."""
    settings: str
    """Settings of its own, in words, without the seed."""
    seed: int
    """The seed of its training."""
    state: str
    """`waiting`, `running`, `finished`, `failed` or `pruned`."""
    node: str | None
    """The worker that has it, or had it last."""
    share: float
    """Share that is done, 0 to 1."""
    accuracy: float | None
    """Accuracy on the test set, of a finished run."""


@dataclass(frozen=True)
class SweepView:
    """What only a sweep has."""

    name: str
    """The name in its file."""
    placement: str
    """`node`: a run a worker; `cluster`: one after the other over all nodes."""
    counts: dict[str, int]
    """Runs by state."""
    remaining_seconds: float | None
    """Time until all runs are over, at the speed so far."""
    cells: tuple[SweepCellView, ...]
    """The runs: at most 1,000 of them."""


@dataclass(frozen=True)
class RunView:
    """The whole picture of a run."""

    cluster: str
    """The inventory's name for it."""
    run: str
    """Name of the run's folder, the run's id in every log."""
    job: str
    """`train`, `cv`, `evaluate`, `pi`, `run` or `sweep`."""
    state: JobState
    """`preparing`, `running`, `done`, `cancelled` or `failed`."""
    reason: str | None
    """Reason of a failure."""
    time: str
    """The moment of this picture: ISO 8601, UTC."""
    started: str
    """Start of its first coordinator: ISO 8601, UTC."""
    elapsed_seconds: float
    """Seconds since then."""
    remaining_seconds: float | None
    """The time left of the present stage, at its pace so far."""
    windows_per_second: float | None
    """The speed of all workers, over the latest ten seconds.

    Once the run has ended, it is the mean while workers worked.
    """
    progress: ProgressView | None
    """Progress of the present stage."""
    nodes: tuple[NodeView, ...]
    """Machines of the inventory."""
    samples: tuple[SampleView, ...]
    """The run over time: at most 600."""
    spans: tuple[SpanView, ...]
    """The state of each worker over time."""
    events: tuple[EventView, ...]
    """The first hundred and the latest four hundred."""
    confusion: ConfusionView | None
    """The matrix of the latest evaluation, where its task has one that a person can read."""
    figures: dict[str, dict[str, float]]
    """The latest figures by split, `train`, `validation`, `test`: those of the task, and those of
    the app by name."""
    train: TrainView | None
    """Null of other jobs."""
    pi: PiView | None
    """Null of other jobs."""
    unit: str = "windows"
    """Unit of work: `windows`, `examples` ...; of pi `samples`."""
    task_type: str = CLASSIFICATION
    """Task that is learnt: `classification`, `multilabel` or `regression`."""
    classes: ClassesView | None = None
    """The classes of the latest evaluation, where there is no confusion matrix."""
    sweep: SweepView | None = None
    """Null of other jobs."""


def described(view: RunView) -> dict[str, Any]:
    """Return the picture as JSON, with the version of this shape."""
    return {"schema": SCHEMA, **asdict(view)}
