"""A training that is played to a RunState."""

from datetime import UTC, datetime

from cluster.status.roles import Seen
from cluster.status.state import RunState
from cluster.status.training import Training
from cluster.status.view import ConfusionView, EpochView, NodeView, PiPoint, RoleView

STARTED = datetime(2026, 1, 1, tzinfo=UTC)
RUN = "20260101T000000Z-train"
PARTS = {"pull": 0.1, "compute": 0.6, "push": 0.2, "wait": 0.1}


def fresh(job: str = "train") -> RunState:
    names = ("coordinator:0", "ps:0"), ("worker:0",), ("worker:1",)
    nodes = [
        NodeView(f"rpi{number}", f"10.0.0.{number}", tuple(RoleView(name, "unknown") for name in tasks))
        for number, tasks in enumerate(names, 1)
    ]
    training = Training("async", "thesis") if job == "train" else None
    return RunState("bench", job, nodes, STARTED, training, 1000 if job == "pi" else None)


def begun(job: str = "train") -> RunState:
    state = fresh(job)
    state.began(RUN, 0.5)
    state.saw({"worker:0": Seen("idle", 0), "worker:1": Seen("idle", 0)}, 1.0)
    return state


def work(state: RunState, begin: int, end: int, workers: tuple[str, ...] = ("worker:0", "worker:1")) -> None:
    """Ten windows a second and worker, looked at twice a second."""
    for half in range(2 * begin, 2 * end):
        for task in workers:
            state.step(task, 5, float(half % 4), 0.5, PARTS)
            state.update(1.0 / (half + 1), 0.01)
        state.advanced(half - 2 * begin + 1, half / 2)
        state.tick(half / 2)


def epoch(number: int, seconds: float) -> EpochView:
    return EpochView("train", number, 0.5, 0.8, 0.01, 20.0, seconds, 0.6, 0.75, 0.7)


CONFUSION = ConfusionView("validation", ("sit", "walk"), ((5, 1), (0, 4)), 1)


def played() -> RunState:
    """A minute, with a worker that left, an epoch, and a matrix."""
    state = begun()
    state.stage("train", 300, "updates", 1.0)
    work(state, 1, 30)
    state.saw({"worker:0": Seen("busy", 0, "update 7"), "worker:1": Seen("absent", 1)}, 30.0)
    work(state, 30, 50, ("worker:0",))
    state.saw({"worker:0": Seen("busy", 0, "update 9"), "worker:1": Seen("idle", 1)}, 50.0)
    work(state, 50, 60)
    state.epoch(epoch(1, 60.0))
    state.evaluated(CONFUSION, {"accuracy": 0.9, "loss": 0.4})
    state.answered("ps:0", 88_000_000, 1000.0, 2000.0)
    state.computes_on("ps:0", "Cortex-A53")
    return state


def pi() -> RunState:
    state = begun("pi")
    state.stage("pi", 10, "chunks", 1.0)
    for chunk in range(1, 11):
        state.drew("worker:0", 100, 0.5, PiPoint(100 * chunk, float(chunk), 3.1, 0.1 / chunk))
        state.tick(float(chunk))
    return state
