"""The grid on the live page and in the metrics, from one event."""

from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, generate_latest

from cluster.jobs.job_metrics import SweepMetrics
from cluster.jobs.sweep import picture_of
from cluster.pages.drawing import Drawing
from cluster.status import events
from cluster.status.apply import replay
from cluster.status.history import is_kept
from cluster.status.view import RunView, described
from cluster.sweeps.record import RunRecord, SweepRecord

HIDDEN = "jobs.train.model.hidden"
RUNS = (
    RunRecord("0001", {HIDDEN: 8}, 1, "finished", {"accuracy": 0.91234}, 10.0, "worker:0"),
    RunRecord("0002", {HIDDEN: 8}, 2, "running", node="worker:1"),
    RunRecord("0003", {HIDDEN: 16}, 1, "failed", error="it diverged"),
    RunRecord("0004", {HIDDEN: 16}, 2),
)
MOVED = events.SweepMoved(
    picture_of(SweepRecord("widths", "x-sweep", "running", "node", (1, 2), (), None, RUNS), {"0002": 0.4}, 12.5)
)


def view() -> RunView:
    found: list[events.Event] = [
        events.Began("c", "sweep", datetime(2026, 1, 1, tzinfo=UTC), ()),
        events.Opened("x-sweep", "sweep", None, "runs"),
        events.StageBegan("sweep", 4, "runs"),
        MOVED,
        events.Advanced(2),
    ]
    return replay([(float(at), event) for at, event in enumerate(found)]).view(5.0)


def test_the_page_shows_the_grid_and_the_time_left() -> None:
    page = Drawing().page(view())
    for words in ("Runs of the sweep", "hidden 8", "hidden 16", "seed 1", "0.9123", "40 % on worker:1", "failed"):
        assert words in page, words
    assert "about 12 s left" in page or "about 13 s left" in page
    assert "chart-throughput" not in page


def test_what_changes_comes_as_a_fragment() -> None:
    found = Drawing().fragments(view())
    assert "0.9123" in found["sweep"]
    assert "1 of 4" in found["tiles"]


def test_the_status_has_every_run() -> None:
    sweep = described(view())["sweep"]
    assert sweep["counts"] == {"waiting": 1, "running": 1, "finished": 1, "failed": 1, "pruned": 0}
    assert sweep["remaining_seconds"] == 12.5
    assert sweep["cells"][1] == {
        "id": "0002", "settings": "hidden 8", "seed": 2, "state": "running", "node": "worker:1", "share": 0.4,
        "accuracy": None,
    }  # fmt: skip


def test_the_history_leaves_the_runs_to_sweep_json() -> None:
    assert not is_kept(MOVED)


def test_the_metrics_count_the_runs_by_state() -> None:
    registry = CollectorRegistry()
    SweepMetrics(registry).consume(MOVED)
    text = generate_latest(registry).decode()
    assert 'pscluster_sweep_runs{role="coordinator",state="running",task="0"} 1.0' in text
    assert 'pscluster_sweep_remaining_seconds{role="coordinator",task="0"} 12.5' in text
