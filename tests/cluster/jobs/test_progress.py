"""The lines that a person sees of a job's events.

The bars themselves: tests/deploy/terminal/test_terminal.py.
"""

import logging
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cluster.jobs.progress import Display, Terminal, bar_facts
from cluster.jobs.run_status import RunStatus
from core.status.events import (
    Advanced,
    Began,
    Consumer,
    Ended,
    EventStream,
    Planned,
    PointsDrawn,
    StageBegan,
    Updated,
)
from tests.cluster.jobs.kit import events_of
from tests.tables import table

BEGAN = Began("bench", "train", datetime(2026, 1, 1, tzinfo=UTC), (), "async", "thesis")


def shown_on(display: Display) -> Consumer:
    status = RunStatus(BEGAN)
    return EventStream(status.consume, Terminal(display, status.now).consume).emit


TOLD = table("cluster/jobs/events")


@pytest.mark.parametrize("name", [name for name in TOLD if name.startswith("a ")])
def test_the_lines_that_stay(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with Display(quiet=True) as display:
        emit = shown_on(display)
        for event in events_of(TOLD[name]["events"]):
            emit(event)
    assert caplog.messages == TOLD[name]["lines"]


def test_a_stage_that_is_left_half_done_takes_its_bar_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    display = Display(quiet=True)
    emit = shown_on(display)
    for stage in ("read", "pi"):
        emit(StageBegan(stage, 10, "chunks"))
        emit(PointsDrawn(0, 100, 0.5, 100, 3.1, 0.1))
        emit(Advanced(3))
        assert [task.description for task in display._progress.tasks] == [stage]
    emit(Ended("cancelled"))
    assert display._progress.tasks == []
    assert caplog.messages == []


def test_a_bar_says_how_its_stage_goes() -> None:
    status = RunStatus(BEGAN)
    shown = list[str]()
    for event in events_of(TOLD["bar"]["events"]):
        status.consume(event)
        shown.append(bar_facts(status.state()))
    assert shown == TOLD["bar"]["lines"]


def test_a_bar_of_pi_says_the_estimate() -> None:
    status = RunStatus(replace(BEGAN, job="pi", mode=None))
    status.consume(StageBegan("pi", 10, "chunks"))
    assert bar_facts(status.state()) == ""
    status.consume(PointsDrawn(0, 100, 0.5, 100, 3.1, 0.1))
    assert bar_facts(status.state()) == "3.1000000 +- 0.1000000"


def test_a_bar_shows_what_is_known_when_it_is_drawn() -> None:
    display = Display(quiet=True)
    emit = shown_on(display)
    emit(StageBegan("train", 10, "updates"))
    emit(Planned(12, 8, 0.01))
    emit(Updated(3, 3, 10, 0.5, 0.01, 1234.0))
    list(display._progress.get_renderables())
    (task,) = display._progress.tasks
    assert (task.completed, task.fields["facts"]) == (3, "epoch 9/12  loss 0.50")
    emit(Advanced(10))
    assert display._progress.tasks == []
