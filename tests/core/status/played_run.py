"""A training that is played: its events, applied one by one, and what of them the history keeps."""

from datetime import UTC, datetime

from core.status.apply import apply, implied_events
from core.status.events import (
    Advanced,
    Began,
    EpochEnded,
    Event,
    FiguresComputed,
    Looked,
    Opened,
    PointsDrawn,
    RoleSeen,
    StageBegan,
    Stamped,
    Stepped,
    Updated,
)
from core.status.history import is_kept
from core.status.parts import FIGURE_KEYS, Figures, NodeTasks, Seen
from core.status.state import RunState
from core.status.view import ConfusionView, EpochView, RunView

STARTED = datetime(2026, 1, 1, tzinfo=UTC)
RUN = "20260101T000000Z-train"
PARTS = {"pull": 0.1, "compute": 0.6, "push": 0.2, "wait": 0.1}
AVERAGES = [key for key in FIGURE_KEYS if key not in ("accuracy", "loss")]
FIGURES = Figures(loss=0.4, accuracy=0.9, others={}, **dict.fromkeys(AVERAGES, 0.8))
HELD_OUT = Figures(loss=0.6, accuracy=0.75, others={}, **dict.fromkeys(AVERAGES, 0.7))
MATRIX = FiguresComputed("validation", FIGURES, ("sit", "walk"), ((5, 1), (0, 4)), 1)
CONFUSION = ConfusionView("validation", ("sit", "walk"), ((5, 1), (0, 4)), 1)
BOTH = ("worker:0", "worker:1")


class Played:
    """A run so far."""

    def __init__(self, state: RunState = RunState()) -> None:  # noqa: B008  it is frozen
        self.state = state
        self.kept: list[Stamped] = []

    def emit(self, event: Event, seconds: float) -> None:
        """The event with what follows from it."""
        for at, follows in (*implied_events(self.state, event, seconds), (seconds, event)):
            self.state = apply(self.state, follows, at)
            if is_kept(follows):
                self.kept.append((at, follows))

    def look(self, seconds: float, **phases: str | Seen) -> None:
        """The workers are like that now: `worker0="idle"`."""
        seen = {
            f"worker:{name.removeprefix('worker')}": (
                phase if isinstance(phase, Seen) else Seen(phase, 0)
            )
            for name, phase in phases.items()
        }
        self.emit(Looked(seen), seconds)

    def work(self, begin: int, end: int, workers: tuple[str, ...] = BOTH) -> None:
        """Ten windows a second and worker, looked at twice a second."""
        done = self.state.progress.done
        for half in range(2 * begin, 2 * end):
            for task in workers:
                self.emit(Stepped(int(task[-1]), 5, float(half % 4), 0.5, PARTS), half / 2)
            done += 1
            self.emit(Updated(half, done, 300, 1.0 / (half + 1), 0.01, 20.0), half / 2)
            self.emit(Looked({}), half / 2)

    def view(self, seconds: float) -> RunView:
        """The picture at this second."""
        return self.state.view(seconds)


def fresh(job: str = "train", *, alone: bool = False) -> Played:
    """Return a run of which nothing is known but its inventory."""
    names = ("coordinator:0", "ps:0"), ("worker:0",), ("worker:1",)
    nodes = tuple(
        NodeTasks(f"rpi{number}", f"10.0.0.{number}", tasks)
        for number, tasks in enumerate(names, 1)
    )
    if job == "train":
        mode, model = ("async", "thesis")
    else:
        mode, model = (None, None)
    played = Played()
    played.emit(
        Began("bench", job, STARTED, nodes, mode, model, 1000 if job == "pi" else None, alone), 0.0
    )
    return played


def begun(job: str = "train") -> Played:
    """With its two workers in the cluster."""
    played = fresh(job)
    played.emit(Opened(RUN, job, 1234 if job == "train" else None), 0.5)
    played.look(1.0, worker0="idle", worker1="idle")
    return played


def alone() -> Played:
    """With a coordinator that works by itself."""
    played = fresh(alone=True)
    played.emit(Opened(RUN, "train"), 0.5)
    return played


def ended(number: int) -> EpochEnded:
    """An epoch."""
    return EpochEnded("train", number, 0.5, 0.8, 0.01, 20.0, 12.0, HELD_OUT)


def epoch(number: int, seconds: float) -> EpochView:
    """Return that epoch as the picture has it."""
    return EpochView("train", number, 0.5, 0.8, 0.01, 20.0, seconds, 0.6, 0.75, 0.7, {}, 0.7, 0.7)


def whole() -> Played:
    """A minute, with a worker that left, an epoch, and a matrix."""
    played = begun()
    played.emit(StageBegan("train", 300, "updates"), 1.0)
    played.work(1, 30)
    played.look(30.0, worker0=Seen("busy", 0, "update 7"), worker1=Seen("absent", 1))
    played.work(30, 50, ("worker:0",))
    played.look(50.0, worker0=Seen("busy", 0, "update 9"), worker1=Seen("idle", 1))
    played.work(50, 60)
    played.emit(ended(1), 60.0)
    played.emit(MATRIX, 60.0)
    played.emit(RoleSeen("ps:0", True, 88_000_000, 1000.0, 2000.0, "Cortex-A53"), 60.0)
    return played


def pi() -> Played:
    """Ten chunks of points in ten seconds."""
    played = begun("pi")
    played.emit(StageBegan("pi", 10, "chunks"), 1.0)
    for chunk in range(1, 11):
        played.emit(PointsDrawn(0, 100, 0.5, 100 * chunk, 3.1, 0.1 / chunk), 1.0 + chunk)
        played.emit(Advanced(chunk), 1.0 + chunk)
        played.emit(Looked({}), 1.0 + chunk)
    return played
