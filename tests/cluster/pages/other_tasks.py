"""Runs that learn something else than activities: a regression, labels, many classes."""

import json
from pathlib import Path

from core.status.events import (
    Ended,
    EpochEnded,
    FiguresComputed,
    Opened,
    Planned,
    StageBegan,
    StoppedEarly,
)
from core.status.history import NAME, condensed_events, line_of
from core.status.parts import ClassCount, Figures
from tests.cluster.pages.example import HOSTILE
from tests.cluster.pages.folders import RESULTS
from tests.core.status.played_run import RUN, STARTED, Played, fresh

EPOCHS = 5
LABELS = ("rain", "SNOW_STORM", "wind", HOSTILE[:40])


def _begun(task_type: str) -> Played:
    played = fresh()
    played.emit(Opened(RUN, "train", 4321, "examples", task_type), 0.5)
    played.look(1.0, worker0="idle", worker1="idle")
    played.emit(StageBegan("train", 300, "updates"), 1.0)
    played.emit(Planned(30, 0, 0.01), 1.0)
    return played


def _trained(played: Played, event: FiguresComputed, loss: float, accuracy: float | None) -> None:
    """An epoch of ten seconds, with what its validation found."""
    epoch = event.epoch or 0
    played.work(10 * epoch, 10 * epoch + 10)
    at = 10.0 * epoch + 10
    played.emit(event, at)
    played.emit(EpochEnded("train", epoch, loss, accuracy, 0.01, 20.0, 60.0, event.figures), at)


def regression(epochs: int = EPOCHS) -> Played:
    """It stopped early: figures of very different sizes, one with an attack as its name."""
    played = _begun("regression")
    for epoch in range(1, epochs + 1):
        others = {
            "mae": 12_345.6 / epoch,
            "rmse": 23_456.7 / epoch,
            "r2": 1 - 1 / epoch,
            HOSTILE[:60]: 0.00001 * epoch,
        }
        found = Figures(loss=5e8 / epoch**2, others=others)
        event = FiguresComputed("validation", found, epoch=epoch)
        _trained(played, event, 6e8 / epoch**2, None)
    return played


def regression_that_ended() -> Played:
    """With a test, too."""
    played = regression()
    at = 10.0 * EPOCHS + 11
    played.emit(StoppedEarly("train", EPOCHS, 2, 3), at)
    played.emit(StageBegan("test", 1, "chunks"), at)
    tested = Figures(loss=123_456_789.0, others={"mae": 2469.12, "rmse": 4691.3, "r2": 0.8125})
    played.emit(FiguresComputed("test", tested, epoch=2), at)
    played.emit(Ended("done"), at)
    return played


def multilabel() -> Played:
    """Four labels, the names of which are no words."""
    played = _begun("multilabel")
    counts = tuple(ClassCount(label, 10 + at, at, 5 - at) for at, label in enumerate(LABELS))
    for epoch in (1, 2):
        others = {"label_accuracy": 0.9}
        found = Figures(loss=0.5 / epoch, accuracy=0.4 * epoch, f1_macro=0.3 * epoch, others=others)
        event = FiguresComputed("validation", found, epoch=epoch, counts=counts)
        _trained(played, event, 0.6, 0.5)
    return played


def many_classes(classes: int = 130) -> Played:
    """More than a matrix has room for."""
    played = _begun("classification")
    names = tuple(f"class_{at}" for at in range(classes))
    rows = tuple(
        tuple(
            20 + true if true == given else at if (at := (true * given) % 7) > 4 else 0
            for given in range(classes)
        )
        for true in range(classes)
    )
    found = Figures(loss=0.5, accuracy=0.8, f1_macro=0.75)
    _trained(played, FiguresComputed("validation", found, names, rows, 1), 0.6, 0.5)
    return played


def left(folder: Path, played: Played, final: Figures) -> Path:
    """The folder of such a run, with its history and its result."""
    folder.mkdir(parents=True)
    seconds = played.state.ended_seconds or 60.0
    lines = (line_of(event, at, STARTED) for at, event in condensed_events(played.state, seconds))
    (folder / NAME).write_bytes(b"".join(lines))
    result = {**RESULTS["other"], "final": final.describe(), "elapsed_seconds": seconds}
    (folder / "result.json").write_text(json.dumps(result))
    return folder
