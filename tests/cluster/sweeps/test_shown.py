"""The grid on the live page and in the metrics, from one event."""

import re
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, generate_latest

from cluster.pages.drawing import Drawing
from cluster.sweeps.driving.metrics import SweepMetrics
from cluster.sweeps.driving.shown import picture_of
from cluster.sweeps.record import RunRecord, SweepRecord
from core.status import events
from core.status.apply import replay
from core.status.history import is_kept
from core.status.view import RunView, described

HIDDEN = "jobs.train.model.hidden"
RUNS = (
    RunRecord("0001", {HIDDEN: 8}, 1, "finished", {"accuracy": 0.91234}, 10.0, "worker:0"),
    RunRecord("0002", {HIDDEN: 8}, 2, "running", node="worker:1"),
    RunRecord("0003", {HIDDEN: 16}, 1, "failed", error="it diverged"),
    RunRecord("0004", {HIDDEN: 16}, 2),
)
MOVED = events.SweepMoved(
    picture_of(
        SweepRecord("widths", "x-sweep", "running", "node", (1, 2), (), RUNS),
        {"0002": 0.4},
        12.5,
    )
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


def test_the_page_shows_the_grid_and_the_time_left_and_what_changes_comes_as_a_fragment() -> None:
    page = Drawing().page(view())
    shown = "Runs of the sweep;hidden 8;hidden 16;seed 1;0.9123;40 % on worker:1;failed"
    assert [words for words in shown.split(";") if words not in page] == []
    assert re.search("about 1[23] s left", page)
    assert "chart-throughput" not in page
    fragments = Drawing().fragments(view())
    assert "0.9123" in fragments["sweep"]
    assert "1 of 4" in fragments["tiles"]


def test_the_status_has_every_run() -> None:
    sweep = described(view())["sweep"]
    assert sweep["counts"] == {"waiting": 1, "running": 1, "finished": 1, "failed": 1, "pruned": 0}
    assert sweep["remaining_seconds"] == 12.5
    assert sweep["cells"][1] == {
        "id": "0002",
        "settings": "hidden 8",
        "seed": 2,
        "state": "running",
        "node": "worker:1",
        "share": 0.4,
        "accuracy": None,
    }


def test_the_history_leaves_the_runs_to_sweep_json() -> None:
    assert not is_kept(MOVED)


def test_the_metrics_count_the_runs_by_state() -> None:
    registry = CollectorRegistry()
    SweepMetrics(registry, lambda: (replay([(0.0, MOVED)]), 0.0))
    text = generate_latest(registry).decode()
    assert 'pscluster_sweep_runs{role="coordinator",state="running",task="0"} 1.0' in text
    assert 'pscluster_sweep_remaining_seconds{role="coordinator",task="0"} 12.5' in text
