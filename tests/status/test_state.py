"""What happens in a run, and the picture that it makes."""

import copy
import json
from collections.abc import Callable

import pytest

from cluster.status.apply import apply, changes_of, replay
from cluster.status.events import (
    Advanced,
    Ended,
    Noted,
    Opened,
    Restored,
    RoleSeen,
    StageBegan,
    Stepped,
    StoppedEarly,
    Updated,
    Validating,
    WorkerChanged,
)
from cluster.status.parts import Seen
from cluster.status.state import LONGEST_TEXT, Pace, RoleRecord, RunState, line_of
from cluster.status.view import RoleView, RunView, described
from tests.status.played_run import CONFUSION, FIGURES, PARTS, RUN, Played, begun, ended, epoch, fresh, pi, whole


def role(view: RunView, task: str) -> RoleView:
    return next(role for node in view.nodes for role in node.roles if role.task == task)


OF_WORKERS = ("joined", "suspected", "answers", "left", "drained")


def texts(view: RunView, *kinds: str) -> list[str]:
    return [event.text for event in view.events if event.kind in kinds]


def test_nothing_is_known_before_anything_happened() -> None:
    view = fresh().view(0.0)
    assert (view.state, view.run, view.progress, view.samples, view.events) == ("preparing", "", None, (), ())
    assert [[role.task for role in node.roles] for node in view.nodes] == [
        ["coordinator:0", "ps:0"], ["worker:0"], ["worker:1"]
    ]  # fmt: skip
    assert view.windows_per_second is None
    assert view.train is not None
    assert view.train.staleness is None
    json.dumps(described(view), allow_nan=False)


def test_a_training() -> None:
    view = whole().view(60.0)
    assert (view.state, view.run, view.job) == ("running", RUN, "train")
    assert role(view, "worker:0").windows == 590
    assert role(view, "worker:1").windows == 390
    assert role(view, "worker:0").windows_per_second == pytest.approx(10.0, rel=0.1)
    assert role(view, "worker:0").step_seconds == 0.5
    assert role(view, "worker:0").work == "update 9"
    assert (role(view, "worker:1").departures, role(view, "ps:0").state) == (1, "up")
    assert role(view, "ps:0").memory_bytes == 88_000_000
    assert view.nodes[0].processor == "Cortex-A53"
    assert view.figures == {
        "train": {"loss": 0.5, "accuracy": 0.8}, "validation": FIGURES.describe()
    }  # fmt: skip
    assert view.confusion == CONFUSION
    assert view.train is not None
    assert view.train.step_parts_seconds == pytest.approx({"pull": 0.1, "compute": 0.6, "push": 0.2, "wait": 0.1})
    staleness = view.train.staleness
    assert staleness is not None
    assert (sum(staleness.counts), staleness.maximum, len(staleness.counts)) == (196, 3.0, len(staleness.bounds) + 1)
    assert view.train.epochs == (epoch(1, 60.0),)
    json.dumps(described(view), allow_nan=False)


def test_held_out_people_are_looked_at_within_a_stage() -> None:
    state = begun()
    state.emit(StageBegan("refit", 100, "updates"), 10.0)
    state.emit(Advanced(40), 11.0)
    shown = []
    for begins in (True, False):
        state.emit(Validating(begins), 12.0)
        view = state.view(12.0)
        assert view.progress is not None
        shown.append((view.progress.stage, view.progress.done, view.progress.total))
    assert shown == [("validation", 40, 100), ("refit", 40, 100)]
    assert len(texts(state.view(12.0), "stage")) == len(texts(begun().view(12.0), "stage")) + 1


def test_samples_say_who_did_how_much_and_who_was_there() -> None:
    samples = whole().view(60.0).samples
    assert [sample.seconds for sample in samples] == [float(second) for second in range(2, 60)]
    before, without = samples[10], samples[40]
    assert before.workers == pytest.approx({"worker:0": 10.0, "worker:1": 10.0})
    assert without.workers == pytest.approx({"worker:0": 10.0, "worker:1": 0.0})
    assert (before.windows_per_second, without.windows_per_second) == pytest.approx((20.0, 10.0))
    assert (before.live, without.live) == (2, 1)
    assert samples[0].loss is not None
    assert samples[0].loss > before.loss > without.loss  # type: ignore[operator]  # None fails as well
    assert before.staleness == pytest.approx(0.5, abs=2.0)


def test_a_worker_s_story_is_told_and_drawn() -> None:
    state = whole()
    for seconds, phase in ((61.0, "suspect"), (62.0, "slow"), (63.0, "idle")):
        state.look(seconds, worker1=Seen(phase, 1))
    view = state.view(64.0)
    assert texts(view, *OF_WORKERS) == [
        "worker:0 joined",
        "worker:1 joined",
        "worker:1 left the cluster",
        "worker:1 joined",
        "worker:1 does not answer in time: suspected",
        "worker:1 answers again",
    ]
    spans = [(span.state, span.begin_seconds, span.end_seconds) for span in view.spans if span.task == "worker:1"]
    assert spans == [
        ("working", 1.0, 30.0), ("away", 30.0, 50.0), ("working", 50.0, 61.0), ("suspected", 61.0, 63.0),
        ("working", 63.0, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ("busy", Seen("idle", 1), ["worker:9 left the cluster", "worker:9 joined"]),
        ("suspect", Seen("absent", 1), ["worker:9 left the cluster"]),
        ("idle", Seen("drained", 1), ["worker:9 was drained"]),
        ("drained", Seen("drained", 1), []),
        ("drained", Seen("absent", 1), []),
        ("joining", Seen("idle", 0), ["worker:9 joined"]),
        ("idle", Seen("busy", 0), []),
        ("unknown", Seen("absent", 0), []),
        ("absent", Seen("suspect", 0), ["worker:9 joined", "worker:9 does not answer in time: suspected"]),
    ],
)
def test_lines_about_a_worker(before: str, after: Seen, lines: list[str]) -> None:
    state = RunState(roles={"worker:9": RoleRecord("worker:9", state=before)})
    changes = [line_of(change, 0.0) for change in changes_of(state, "worker:9", after)]
    assert [line[1] for line in changes if line is not None] == lines


def test_progress_and_the_time_left() -> None:
    state = begun()
    assert state.view(1.0).remaining_seconds is None
    state.emit(StageBegan("train", 100, "updates"), 10.0)
    state.emit(Advanced(1), 12.0)
    assert state.view(12.0).remaining_seconds is None
    state.emit(Advanced(21), 22.0)
    view = state.view(22.0)
    assert view.progress is not None
    assert (view.progress.stage, view.progress.done, view.progress.total) == ("train", 21, 100)
    assert view.remaining_seconds == pytest.approx(10.0 / 20 * 79)


def test_a_role_that_answers_no_longer() -> None:
    state = begun()
    state.emit(RoleSeen("ps:0", answers=False), 2.0)
    assert role(state.view(2.0), "ps:0").state == "unknown"
    state.emit(RoleSeen("ps:0", True, 1, 2.0, 3.0), 2.0)
    state.emit(RoleSeen("ps:0", answers=False), 3.0)
    assert role(state.view(3.0), "ps:0").state == "lost"
    assert role(state.view(3.0), "ps:0").memory_bytes is None
    state.emit(RoleSeen("worker:0", True, 5, None, None), 3.0)
    assert role(state.view(3.0), "worker:0").state == "idle"


@pytest.mark.parametrize("played", [whole, pi])
def test_after_the_end_speeds_are_means_and_nothing_lasts(played: Callable[[], Played]) -> None:
    state = played()
    state.emit(Ended("failed", "ps:0 is gone"), 70.0)
    view = state.view(500.0)
    assert (view.state, view.reason, view.elapsed_seconds, view.remaining_seconds) == (
        "failed", "ps:0 is gone", 70.0, None
    )  # fmt: skip
    assert view.windows_per_second is not None
    assert view.windows_per_second > 0
    assert all(span.end_seconds is not None for span in view.spans)
    assert texts(view, "failed") == ["failed: ps:0 is gone"]


def test_pi() -> None:
    view = pi().view(11.0)
    assert view.pi is not None
    assert view.pi.planned_samples == 1000
    assert [point.samples for point in view.pi.points] == [100 * chunk for chunk in range(1, 11)]
    assert view.train is None
    assert role(view, "worker:0").windows == 1000


def test_a_loss_that_is_no_number_is_in_no_mean() -> None:
    state = begun()
    state.work(1, 3)
    state.emit(Updated(9, 9, 300, float("nan"), 0.1, 20.0), 3.0)
    state.work(3, 5)
    assert all(sample.loss is not None and sample.loss == sample.loss for sample in state.view(5.0).samples)


def test_a_state_is_never_changed_in_place() -> None:
    played = whole()
    before, picture = copy.deepcopy(played.state), played.view(60.0)
    work = Stepped(0, 5, 1.0, 0.5, PARTS), Updated(1, 1, 300, 0.5, 0.1, 20.0)
    for event in (*work, WorkerChanged("worker:0", "left", 1), Noted("warning", "hot"), Ended("done")):
        assert apply(played.state, event, 61.0) != played.state
    assert played.state == before
    assert played.view(60.0) == picture


def test_steps_together_come_to_the_same_as_one_by_one() -> None:
    steps = [(61.0, Stepped(place % 2, 5, float(place % 7), 0.1 * place, PARTS)) for place in range(400)]
    updates = [(61.0 + place, Updated(place, 130 + place, 300, 0.5, 0.1, 20.0)) for place in range(400)]
    found = [stamped for pair in zip(steps, updates, strict=True) for stamped in pair]
    together, each = replay(found, whole().state), whole().state
    for seconds, event in found:
        each = apply(each, event, seconds)
    assert together.view(500.0).train == each.view(500.0).train
    assert together.roles == each.roles
    assert together.progress == each.progress
    assert together.window.losses == each.window.losses


def test_a_worker_that_left_and_came_back_between_two_looks_has_one_span() -> None:
    state = begun()
    state.look(9.0, worker0="idle", worker1=Seen("idle", 1))
    view = state.view(10.0)
    assert texts(view, *OF_WORKERS)[-2:] == ["worker:1 left the cluster", "worker:1 joined"]
    assert [(span.state, span.begin_seconds) for span in view.spans if span.task == "worker:1"] == [("working", 1.0)]


def test_a_coordinator_that_works_alone_is_in_the_timeline() -> None:
    state = fresh(alone=True)
    state.emit(Opened(RUN, "train"), 0.5)
    state.work(1, 5, ("worker:0",))
    view = state.view(5.0)
    assert role(view, "coordinator:0").windows == 40
    assert [(span.task, span.state) for span in view.spans] == [("coordinator:0", "working")]
    assert view.samples[-1].live == 1


def test_a_long_line_is_cut() -> None:
    state = begun()
    state.emit(Noted("warning", "x" * 10_000), 2.0)
    assert len(state.view(2.0).events[-1].text) == LONGEST_TEXT


def test_the_time_left_is_that_of_the_speed_seen() -> None:
    resumed = Pace(total=100).advanced(60, 10.0)
    assert resumed.remaining_seconds(11.0) is None
    later = resumed.advanced(70, 15.0)
    assert later.remaining_seconds(15.0) == pytest.approx(15.0)
    assert Pace(total=100).advanced(100, 1.0).remaining_seconds(2.0) is None


def test_a_fit_that_stopped_early_says_why_until_its_end_is_rolled_back() -> None:
    played = whole()
    played.emit(ended(2), 61.0)
    played.emit(StoppedEarly("train", 2, 1, 1), 61.0)
    view = played.view(62.0)
    assert view.train is not None
    assert view.train.stopped_early == "no better for 1 epoch (best: epoch 1)"
    assert view.events[-1].text == "train: stopped early after epoch 2: no better for 1 epoch (best: epoch 1)"
    played.emit(Restored(1, 0), 100.0)
    again = played.view(101.0)
    assert again.train is not None
    assert again.train.stopped_early is None
    assert view.events[-1].text in {event.text for event in again.events}
