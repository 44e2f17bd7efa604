"""What happens in a run, and the picture that it makes."""

import copy
import json
from typing import Any

import pytest

from core.status.apply import apply, changes_of, replay
from core.status.events import (
    Ended,
    Event,
    Noted,
    Resumed,
    Stamped,
    Stepped,
    Updated,
    UpdatesCounted,
    WorkerChanged,
)
from core.status.parts import Seen
from core.status.records import Pace, RoleRecord, line_of
from core.status.state import LONGEST_TEXT, RunState
from core.status.view import described
from tests.core.status.pictures import picture, shows
from tests.core.status.played_run import (
    PARTS,
    begun,
    whole,
)
from tests.core.status.stories import STORIES, told
from tests.shown import part
from tests.tables import table


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_a_story_makes_these_pictures(story: dict[str, Any]) -> None:
    for played, at, expected in told(story):
        view = played.view(at)
        shows(view, **expected)
        json.dumps(described(view), allow_nan=False)


def test_samples_say_who_did_how_much_and_who_was_there() -> None:
    samples = picture(whole().view(60.0))["samples"]
    assert [sample["seconds"] for sample in samples] == [float(at) for at in range(2, 60)]
    for sample, speed, live in ((samples[10], 10.0, 2), (samples[40], 0.0, 1)):
        expected = {
            "windows_per_second": 10.0 + speed,
            "workers": {"worker:0": 10.0, "worker:1": speed},
            "live": live,
            "staleness": 1.5,
        }
        assert part(sample, expected) == expected
    assert samples[0]["loss"] > samples[10]["loss"] > samples[40]["loss"]


def test_what_came_twice_counts_from_the_first_count_of_each_coordinator() -> None:
    played = begun()
    since_began = []
    events: list[Event] = [UpdatesCounted(10, twice, 0, 0) for twice in (2, 5, 4, 5)]
    events.insert(2, Resumed(2.0))
    for event in events:
        played.emit(event, 3.0)
        training = played.state.training
        assert training is not None
        since_began.append(training.latest.get("duplicates_since_resumed"))
    assert since_began == [0, 3, None, 0, 1]


@pytest.mark.parametrize(
    ("before", "phase", "departures", "lines"), table("core/status/tables", "worker")
)
def test_lines_about_a_worker(before: str, phase: str, departures: int, lines: list[str]) -> None:
    state = RunState(roles={"worker:9": RoleRecord("worker:9", state=before)})
    changes = changes_of(state, "worker:9", Seen(phase, departures))
    found = [line_of(change, 0.0) for change in changes]
    assert [line[1] for line in found if line] == [f"worker:9 {line}" for line in lines]


def test_a_loss_that_is_no_number_is_in_no_mean() -> None:
    state = begun()
    state.work(1, 3)
    state.emit(Updated(9, 9, 300, float("nan"), 0.1, 20.0), 3.0)
    state.work(3, 5)
    losses = [sample.loss for sample in state.view(5.0).samples]
    assert all(loss is not None and loss > 0 for loss in losses)


def test_a_state_is_never_changed_in_place() -> None:
    played = whole()
    before = copy.deepcopy(played.state)
    for event in (
        Stepped(0, 5, 1.0, 0.5, PARTS),
        Updated(1, 1, 300, 0.5, 0.1, 20.0),
        WorkerChanged("worker:0", "left", 1),
        Noted("warning", "hot"),
        Ended("done"),
    ):
        assert apply(played.state, event, 61.0) != played.state
    assert played.state == before
    assert played.view(60.0) == whole().view(60.0)


def test_steps_together_come_to_the_same_as_one_by_one() -> None:
    found: list[Stamped] = []
    for place in range(400):
        step = Stepped(place % 2, 5, float(place % 7), 0.1 * place, PARTS)
        update = Updated(place, 130 + place, 300, 0.5, 0.1, 20.0)
        found += [(61.0, step), (61.0 + place, update)]
    together = replay(found, whole().state)
    each = whole().state
    for seconds, event in found:
        each = apply(each, event, seconds)
    assert together.view(500.0).train == each.view(500.0).train
    assert (together.roles, together.progress) == (each.roles, each.progress)
    assert together.sums.losses == each.sums.losses


def test_a_long_line_is_cut() -> None:
    state = begun()
    state.emit(Noted("warning", "x" * 10_000), 2.0)
    shows(state.view(2.0), log={"warning": ["x" * (LONGEST_TEXT - 1) + "…"]})


def test_the_time_left_is_that_of_the_speed_seen() -> None:
    resumed = Pace(total=100).advanced(60, 10.0)
    assert resumed.remaining_seconds(11.0) is None
    assert resumed.advanced(70, 15.0).remaining_seconds(15.0) == pytest.approx(15.0)
    assert Pace(total=100).advanced(100, 1.0).remaining_seconds(2.0) is None
