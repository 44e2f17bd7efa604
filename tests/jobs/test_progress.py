"""The lines that a person sees of a job's events. The bars themselves: tests/deploy/terminal/test_terminal.py."""

import logging

import pytest

from cluster.jobs.progress import Display, Terminal
from cluster.status.events import (
    Advanced,
    Ended,
    EpochEnded,
    FiguresComputed,
    Opened,
    Planned,
    PointsDrawn,
    StageBegan,
    Stepped,
    StoppedEarly,
    Updated,
    Validating,
)
from cluster.status.parts import Figures
from cluster.status.stream import Stream

FIGURES = Figures(loss=0.5, accuracy=0.875, f1_macro=0.8)


def test_a_training_is_a_line_an_epoch_and_one_for_the_test(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with Display(quiet=True) as display:
        emit = Stream(Terminal(display).consume).emit
        emit(StageBegan("train", 2, "updates"))
        emit(Planned(12, 8, 0.01))
        emit(Stepped(0, 20, 1.0, 0.5, {"pull": 0.5}))
        for done in (1, 2):
            emit(Updated(done, done, 2, 0.5, 0.01, 1234.0))
        emit(Validating(True))
        emit(FiguresComputed("validation", FIGURES, ("a",), ((1,),), 9))
        emit(Validating(False))
        emit(EpochEnded("train", 9, 0.5, 0.75, 0.01, 1234.0, 61.4, FIGURES))
        emit(EpochEnded("train", 10, 0.5, 0.75, 0.01, 1234.0, 31.0, None))
        emit(StageBegan("test", 1, "chunks"))
        emit(Advanced(1))
        emit(FiguresComputed("test", FIGURES, ("a",), ((1,),), 9))
        emit(Ended("done"))
    assert caplog.messages == [
        "train: epoch   9/12   1,234 windows/s  loss 0.5000  accuracy 0.7500  validation accuracy 0.8750  61 s left",
        "train: epoch  10/12   1,234 windows/s  loss 0.5000  accuracy 0.7500  31 s left",
        "test: accuracy 0.8750, macro F1 0.8000",
    ]


def test_a_regression_says_its_own_figures_and_why_it_stopped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    found = Figures(loss=2.5, others={"mae": 1.25, "r2": 0.5})
    with Display(quiet=True) as display:
        emit = Stream(Terminal(display).consume).emit
        emit(Opened("20260101T000000Z-train", "train", 10, "examples", "regression"))
        emit(StageBegan("train", 2, "updates"))
        emit(Planned(30, 0, 0.01))
        emit(Updated(1, 1, 2, 2e-5, 0.01, 1234.0))
        emit(EpochEnded("train", 1, 2e-5, None, 0.01, 1234.0, 61.4, found))
        emit(StoppedEarly("train", 12, 7, 5))
        emit(FiguresComputed("test", found))
        emit(Ended("done"))
    assert caplog.messages == [
        "train: epoch   1/30   1,234 examples/s  loss 2e-05  validation loss 2.5000, mae 1.2500, r2 0.5000  61 s left",
        "train: stopped early after epoch 12: no better for 5 epochs (best: epoch 7)",
        "test: loss 2.5000, mae 1.2500, r2 0.5000",
    ]


def test_a_stage_that_is_left_half_done_takes_its_bar_away(caplog: pytest.LogCaptureFixture) -> None:
    display = Display(quiet=True)
    emit = Stream(Terminal(display).consume).emit
    for stage in ("read", "pi"):
        emit(StageBegan(stage, 10, "chunks"))
        emit(PointsDrawn(0, 100, 0.5, 100, 3.1, 0.1))
        emit(Advanced(3))
        assert [task.description for task in display._progress.tasks] == [stage]
    emit(Ended("cancelled"))
    assert display._progress.tasks == []
    assert caplog.messages == []
