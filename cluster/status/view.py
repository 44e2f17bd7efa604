"""The picture of a run: what `/api/status` answers, and what the page and the report draw.

Every field is plain data; `described` gives it as JSON. What is not known (yet) is None or empty.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

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
    """What it is at now, e.g. `update 17`."""
    windows_per_second: float | None = None
    """Of pi: samples."""
    windows: int = 0
    """Windows (pi: samples) it has worked off in this run."""
    step_seconds: float | None = None
    """Median over its latest steps."""
    sent_bytes_per_second: float | None = None
    received_bytes_per_second: float | None = None
    memory_bytes: int | None = None
    """Anonymous memory of the process."""
    departures: int = 0
    """Times it left the cluster in this run."""


@dataclass(frozen=True)
class NodeView:
    """One machine of the inventory with its role processes."""

    name: str
    address: str
    roles: tuple[RoleView, ...]
    processor: str | None = None
    """Its kind, as the role processes name it."""


@dataclass(frozen=True)
class ProgressView:
    """How far the present stage is."""

    stage: str
    """`preparing the recordings`, `train`, `refit`, `validation`, `test`, `pi` ..."""
    done: int
    total: int
    unit: str
    """`updates`, `chunks`, `windows` ..."""


@dataclass(frozen=True)
class EpochView:
    """One finished epoch; figures of the validation set are None where nothing was held out."""

    stage: str
    epoch: int
    loss: float
    accuracy: float
    learning_rate: float
    windows_per_second: float
    seconds: float
    """Since the run began."""
    validation_loss: float | None = None
    validation_accuracy: float | None = None
    validation_f1_macro: float | None = None


@dataclass(frozen=True)
class SampleView:
    """The run at one moment. The time between two grows with the length of the run."""

    seconds: float
    """Since the run began."""
    loss: float | None
    """Mean loss of the updates since the sample before."""
    windows_per_second: float
    """Over the same time; of pi: samples."""
    staleness: float | None
    """Mean over the same time, in updates."""
    workers: dict[str, float]
    """Windows (samples) per second of each worker."""
    live: int
    """Workers in the cluster."""


@dataclass(frozen=True)
class SpanView:
    """A worker in one state, for the timeline; the last one has no end."""

    task: str
    state: str
    """`working`, `away` (absent, joining, drained) or `suspected` (suspect, slow, fenced)."""
    begin_seconds: float
    end_seconds: float | None


@dataclass(frozen=True)
class EventView:
    """A line of the event log."""

    time: str
    """ISO 8601, UTC, milliseconds."""
    seconds: float
    """Since the run began."""
    kind: str
    """`run`, `stage`, `worker`, `checkpoint`, `resumed`, `fault`, `warning` or `result`."""
    text: str


@dataclass(frozen=True)
class ConfusionView:
    """Rows are the true classes."""

    split: str
    labels: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]
    epoch: int | None = None


@dataclass(frozen=True)
class StalenessView:
    """Updates by how stale they were: `counts[i]` of them above `bounds[i - 1]` and at most `bounds[i]`, in updates."""

    bounds: tuple[int, ...]
    counts: tuple[int, ...]
    """One longer than `bounds`: the last is what lies above all."""
    mean: float | None
    maximum: float | None


@dataclass(frozen=True)
class TrainView:
    """What only a training has."""

    mode: str
    model: str
    parameters: int | None
    epoch: int
    planned_epochs: int
    learning_rate: float | None
    step_parts_seconds: dict[str, float]
    """Mean seconds of the latest steps in `pull`, `compute`, `push` and `wait`."""
    epochs: tuple[EpochView, ...] = ()
    staleness: StalenessView | None = None
    pull_bytes_per_step: float | None = None
    push_bytes_per_step: float | None = None
    updates_applied: int | None = None
    duplicates_dropped: int | None = None
    rolled_back: int = 0
    resumptions: int = 0
    checkpoints: int = 0


@dataclass(frozen=True)
class PiPoint:
    """The estimate after so many samples, and after how much time."""

    samples: int
    seconds: float
    """Since the first of them was asked for."""
    estimate: float
    standard_error: float


@dataclass(frozen=True)
class PiView:
    """What only the pi job has."""

    planned_samples: int
    points: tuple[PiPoint, ...]


@dataclass(frozen=True)
class RunView:
    """All of it."""

    cluster: str
    run: str
    """Name of the run's folder, the run's id in every log."""
    job: str
    state: JobState
    reason: str | None
    """Why it failed."""
    time: str
    """Of this picture: ISO 8601, UTC."""
    started: str
    elapsed_seconds: float
    remaining_seconds: float | None
    """Of the present stage, at its pace so far."""
    windows_per_second: float | None
    """Of all workers, over the latest ten seconds; once the run has ended, its mean while somebody worked."""
    progress: ProgressView | None
    nodes: tuple[NodeView, ...]
    samples: tuple[SampleView, ...]
    spans: tuple[SpanView, ...]
    events: tuple[EventView, ...]
    confusion: ConfusionView | None
    figures: dict[str, dict[str, float]]
    """The latest figures by split: `train`, `validation`, `test`."""
    train: TrainView | None
    pi: PiView | None


def described(view: RunView) -> dict[str, Any]:
    """As JSON, with the version of this shape."""
    return {"schema": SCHEMA, **asdict(view)}
