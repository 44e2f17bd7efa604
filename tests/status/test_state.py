"""What happens in a run, and the picture that it makes."""

import json
from collections.abc import Callable

import pytest

from cluster.status.roles import Role, Seen
from cluster.status.state import RunState
from cluster.status.view import RoleView, RunView, described
from tests.status.played_run import CONFUSION, RUN, begun, epoch, fresh, pi, played, work


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
    view = played().view(60.0)
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
        "train": {"loss": 0.5, "accuracy": 0.8}, "validation": {"accuracy": 0.9, "loss": 0.4}
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
    state.stage("refit", 100, "updates", 10.0)
    state.advanced(40, 11.0)
    shown = []
    for begins in (True, False):
        state.validating(begins)
        view = state.view(12.0)
        assert view.progress is not None
        shown.append((view.progress.stage, view.progress.done, view.progress.total))
    assert shown == [("validation", 40, 100), ("refit", 40, 100)]
    assert len(texts(state.view(12.0), "stage")) == len(texts(begun().view(12.0), "stage")) + 1


def test_samples_say_who_did_how_much_and_who_was_there() -> None:
    samples = played().view(60.0).samples
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
    state = played()
    state.saw({"worker:1": Seen("suspect", 1)}, 61.0)
    state.saw({"worker:1": Seen("slow", 1)}, 62.0)
    state.saw({"worker:1": Seen("idle", 1)}, 63.0)
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
    assert [text for _, text in Role("worker:9", state=before).saw(after)] == lines


def test_progress_and_the_time_left() -> None:
    state = begun()
    assert state.view(1.0).remaining_seconds is None
    state.stage("train", 100, "updates", 10.0)
    state.advanced(1, 12.0)
    assert state.view(12.0).remaining_seconds is None
    state.advanced(21, 22.0)
    view = state.view(22.0)
    assert view.progress is not None
    assert (view.progress.stage, view.progress.done, view.progress.total) == ("train", 21, 100)
    assert view.remaining_seconds == pytest.approx(10.0 / 20 * 79)


def test_a_role_that_answers_no_longer() -> None:
    state = begun()
    state.silent("ps:0")
    assert role(state.view(2.0), "ps:0").state == "unknown"
    state.answered("ps:0", 1, 2.0, 3.0)
    state.silent("ps:0")
    assert role(state.view(3.0), "ps:0").state == "lost"
    assert role(state.view(3.0), "ps:0").memory_bytes is None
    state.answered("worker:0", 5, None, None)
    assert role(state.view(3.0), "worker:0").state == "idle"


@pytest.mark.parametrize("state_of", [played, pi])
def test_after_the_end_speeds_are_means_and_nothing_lasts(state_of: Callable[[], RunState]) -> None:
    state = state_of()
    state.end("failed", "ps:0 is gone", 70.0)
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
    work(state, 1, 3)
    state.update(float("nan"), 0.1)
    work(state, 3, 5)
    assert all(sample.loss is not None and sample.loss == sample.loss for sample in state.view(5.0).samples)
