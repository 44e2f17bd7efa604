"""The grid on the live page and in the metrics, from one event."""

import re
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, generate_latest

from cluster.jobs.job_metrics import JobMetrics
from cluster.pages.drawing import Drawing
from cluster.pages.files import RunRecord, SweepRecord
from cluster.sweeps.progress import picture_of
from core.status import events
from core.status.apply import replay
from core.status.history import is_kept
from core.status.view import RunView, described
from tests.tables import table

TABLE = table("cluster/sweeps/shown")
RUNS = tuple(RunRecord(**run) for run in TABLE["runs"])
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
    assert sweep["counts"] == TABLE["counts"]
    assert sweep["remaining_seconds"] == 12.5
    assert sweep["cells"][1] == TABLE["second"]


def test_the_history_leaves_the_runs_to_sweep_json() -> None:
    assert not is_kept(MOVED)


def test_the_metrics_count_the_runs_by_state() -> None:
    registry = CollectorRegistry()
    JobMetrics(registry, lambda: (replay([(0.0, MOVED)]), 0.0))
    text = generate_latest(registry).decode()
    assert 'pscluster_sweep_runs{role="coordinator",state="running",task="0"} 1.0' in text
    assert 'pscluster_sweep_remaining_seconds{role="coordinator",task="0"} 12.5' in text
