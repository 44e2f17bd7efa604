"""Pictures of runs to draw: a training on sixteen nodes, pi, one not begun, one failed."""

import math
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from core.status.state import RunState
from core.status.view import (
    ConfusionView,
    EpochView,
    EventView,
    JobState,
    NodeView,
    PiPoint,
    PiView,
    ProgressView,
    RoleView,
    RunView,
    SampleView,
    SpanView,
    StalenessView,
    TrainView,
)
from tests.tables import table

EXAMPLE = table("cluster/pages/example")
LABELS = tuple(EXAMPLE["labels"])
STATES = EXAMPLE["states"]


STARTED = datetime(2026, 11, 21, 23, 35, 35, tzinfo=UTC)


def event(seconds: float, kind: str, text: str) -> EventView:
    """A line of the log."""
    at = STARTED + timedelta(seconds=seconds)
    return EventView(at.isoformat(timespec="milliseconds"), seconds, kind, text)


def training(workers: int = 16) -> RunView:
    """A training in its tenth epoch of 12."""
    draw = random.Random(1)
    samples = tuple(
        SampleView(
            seconds=at * 2.0,
            loss=0.25 + 1.5 * math.exp(-at / 60) + draw.uniform(-0.04, 0.04),
            windows_per_second=workers * 88.0 + draw.uniform(-90, 90),
            staleness=workers * 0.4,
            workers={
                f"worker:{task}": 70 + task * 2 + draw.uniform(-12, 12) for task in range(workers)
            },
            live=workers - 1,
        )
        for at in range(1, 241)
    )
    finished = tuple(
        EpochView(
            stage="train",
            epoch=epoch,
            loss=0.3 + 1.4 * fall,
            accuracy=0.93 - 0.6 * fall,
            learning_rate=0.002 * math.sin(epoch / 4),
            windows_per_second=1400.0,
            seconds=epoch * 50.0,
            validation_loss=0.42 + 1.2 * fall,
            validation_accuracy=0.90 - 0.58 * fall,
            validation_f1_macro=0.895 - 0.6 * fall,
            validation_precision_macro=0.905 - 0.55 * fall,
            validation_recall_macro=0.89 - 0.59 * fall,
        )
        for epoch in range(1, 10)
        for fall in [math.exp(-epoch / 2)]
    )
    begins = {3 % workers: (1.3, 430.0), 1 % workers: (1.1, 190.0)}
    spans = [
        SpanView(f"worker:{task}", "working", *begins.get(task, (1.0 + task / 10, None)))
        for task in range(workers)
    ]
    spans += [SpanView(*span) for span in EXAMPLE["spans"]]
    roles = tuple(RoleView(**role) for role in EXAMPLE["roles"])
    nodes = [
        NodeView("pi-head", "192.168.1.10", roles),
        *(
            NodeView(
                f"pi-{task:02}",
                f"192.168.1.{task + 16}",
                (
                    RoleView(
                        f"worker:{task}",
                        STATES.get(task, "busy"),
                        work=(
                            None
                            if STATES.get(task) in ("absent", "idle")
                            else f"update {1650 + task}"
                        ),
                        windows_per_second=0.0 if task == 11 else 70.0 + 2 * task,
                        windows=48_000 + 100 * task,
                        step_seconds=1.1 + task / 40,
                        sent_bytes_per_second=6.2e5,
                        received_bytes_per_second=6.0e5,
                        memory_bytes=214_000_000,
                        departures=1 if task in (1, 11) else 0,
                    ),
                ),
                processor="aarch64 0x41 0xd03 0x0",
            )
            for task in range(workers)
        ),
    ]
    rows = tuple(
        tuple(
            round(draw.uniform(0, 14)) if true != given else 420 + 20 * true for given in range(6)
        )
        for true in range(6)
    )
    return replace(
        RunState("thesis", "train", STARTED, "20261121T233535Z-train").view(480.0),
        state="running",
        remaining_seconds=130.0,
        windows_per_second=1411.0,
        progress=ProgressView("train", 1665, 2220, "updates"),
        nodes=tuple(nodes),
        samples=samples,
        spans=tuple(spans),
        events=tuple(event(*line) for line in EXAMPLE["log"]),
        confusion=ConfusionView("validation", LABELS, rows, epoch=9),
        figures=EXAMPLE["figures"],
        train=TrainView(
            **EXAMPLE["train"],
            epochs=finished,
            staleness=StalenessView(**EXAMPLE["staleness"]),
        ),
    )


def estimating(
    workers: int = 16, samples: int = 1_000_000_000, state: JobState = "running"
) -> RunView:
    """The pi job, two thirds through or done."""
    draw = random.Random(samples + workers)
    if state == "done":
        reached = samples
    else:
        reached = samples * 2 // 3
    speed = 5e6 * workers
    points = []
    for at in range(1, 61):
        drawn = reached * at // 60
        error = 1.6422 / math.sqrt(drawn)
        points.append(
            PiPoint(drawn, drawn / speed + 1.0, math.pi + draw.gauss(0, 0.8) * error, error)
        )
    base = training(workers)
    return replace(
        base,
        run=f"20261121T23{workers:02}00Z-pi",
        job="pi",
        state=state,
        elapsed_seconds=points[-1].seconds,
        remaining_seconds=None if state == "done" else 20.0,
        windows_per_second=speed,
        progress=ProgressView("pi", 640, 960, "chunks"),
        samples=tuple(
            replace(
                sample,
                seconds=sample.seconds / 480 * points[-1].seconds,
                loss=None,
                windows_per_second=sample.windows_per_second / 88 * 5e6,
                workers={task: rate / 88 * 5e6 for task, rate in sample.workers.items()},
            )
            for sample in base.samples
        ),
        spans=tuple(SpanView(f"worker:{task}", "working", 0.4, None) for task in range(workers)),
        confusion=None,
        figures={},
        train=None,
        pi=PiView(samples, tuple(points)),
    )


def begun() -> RunView:
    """A training of which nothing but the job is known."""
    view = RunState("local", "train", STARTED).view(0.4)
    return replace(view, progress=ProgressView("preparing the recordings", 0, 0, ""))


def failed() -> RunView:
    """The training, lost with its parameter server."""
    return replace(
        training(),
        state="failed",
        reason="ps:0 at 192.168.1.10:2222 was lost, and the parameters with it",
        remaining_seconds=None,
    )


HOSTILE = "<img src=x onerror=alert(1)>\"'</script><script>alert(2)</script>&lt;\u2028"


def hostile() -> RunView:
    """Every text a file or a person could have put there is an attack."""
    base = training(4)
    return replace(
        base,
        cluster=HOSTILE,
        run=HOSTILE,
        state="failed",
        reason=HOSTILE,
        started=HOSTILE,
        unit=HOSTILE,
        nodes=tuple(
            NodeView(
                HOSTILE,
                HOSTILE,
                tuple(replace(role, work=HOSTILE, state=HOSTILE) for role in node.roles),
            )
            for node in base.nodes
        ),
        progress=ProgressView(HOSTILE, 1, 2, HOSTILE),
        spans=(SpanView(HOSTILE, "working", 0.0, None),),
        samples=tuple(replace(sample, workers={HOSTILE: 1.0}) for sample in base.samples),
        events=tuple(
            replace(event, kind=HOSTILE, text=HOSTILE, time=HOSTILE) for event in base.events
        ),
        confusion=ConfusionView(HOSTILE, (HOSTILE, "b"), ((1, 2), (3, 4))),
    )
