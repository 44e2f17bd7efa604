"""A run on disk: what comes back is what was there, whatever happened to the file."""

import json
import os
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import ClusterError, UsageError
from cluster.status import history
from cluster.status.apply import replay
from cluster.status.events import (
    Calibrated,
    CheckpointWritten,
    Diverged,
    Ended,
    EpochEnded,
    FaultInjected,
    FiguresComputed,
    Noted,
    Planned,
    Restored,
    Resumed,
    Stamped,
    StoppedEarly,
    TrafficCounted,
    UpdatesCounted,
)
from cluster.status.history import (
    KEPT,
    NAME,
    HistoryFile,
    counted,
    event_of,
    events_in,
    events_of,
    finite,
    line_of,
    read_events,
    read_run,
)
from cluster.status.parts import ClassCount, Figures, MixUp
from cluster.status.view import RunView
from tests.status.played_run import FIGURES, RUN, STARTED, Played, begun, ended, epoch, fresh, pi, whole


def kept(played: Played, folder: Path, seconds: float) -> HistoryFile:
    file = HistoryFile(folder, STARTED, lambda: events_of(played.state, seconds))
    assert file.write([])
    played.kept.clear()
    return file


def taken(played: Played, seconds: float = 0.0) -> list[Stamped]:
    found, played.kept = [*played.kept, (seconds, counted(played.state))], []
    return found


def same(first: RunView, second: RunView) -> None:
    """But for what is only known of a run that goes on."""
    one, two = (json.loads(json.dumps(view.__dict__, default=lambda part: part.__dict__)) for view in (first, second))
    for found in (one, two):
        found.pop("remaining_seconds"), found.pop("windows_per_second")
        for node in found["nodes"]:
            for role in node["roles"]:
                for live in ("state", "work", "windows_per_second", "sent_bytes_per_second"):
                    role.pop(live)
                role.pop("received_bytes_per_second")
    assert one == two


def through_json(found: list[Stamped]) -> list[Stamped]:
    return list(events_in(line_of(event, at, STARTED) for at, event in found))


@pytest.mark.parametrize("played", [whole(), pi(), fresh(alone=True)])
def test_everything_comes_back(played: Played) -> None:
    found = through_json(events_of(played.state, 60.0))
    same(replay(found).view(60.0), played.view(60.0))
    assert max(at for at, _ in found) == 60.0


def test_a_run_that_ended_and_was_resumed_comes_back_from_a_file_that_was_written_anew() -> None:
    played = whole()
    played.emit(Ended("failed", "ps:0 is gone"), 61.0)
    played.emit(Resumed(61.0), 100.0)
    played.emit(Restored(0, 0), 101.0)
    played.look(102.0, worker0="idle", worker1="idle")
    played.work(102, 110)
    same(replay(through_json(events_of(played.state, 110.0))).view(110.0), played.view(110.0))


def test_what_was_appended_one_by_one_comes_back_too(tmp_path: Path) -> None:
    played = fresh()
    file = kept(played, tmp_path, 0.5)
    everything = whole()
    file.write([*everything.kept[1:], (60.0, counted(everything.state))])
    first = json.loads((tmp_path / NAME).read_text().splitlines()[0])
    assert (first["event"], first["schema"], first["started"]) == ("began", 1, "2026-01-01T00:00:00.000+00:00")
    same(replay(read_events(tmp_path)).view(60.0), everything.view(60.0))


REGRESSION = Figures(loss=2.5, others={"r2": 0.5, "mae": 1.25})
COUNTS, MIX_UPS = (ClassCount("rain", 5, 1, 2),), (MixUp("rain", "snow", 2),)
ONE_OF_EACH: list[Stamped] = [
    (1.5, Noted("warning", "hot")), (2.0, Planned(3, 1, 0.01)), (3.0, UpdatesCounted(5, 1, 2, 1)),
    (4.0, TrafficCounted(1000, 2000, 5)), (5.0, CheckpointWritten(0.2, 4096, 5)), (6.0, Diverged("the loss is nan")),
    (7.0, FaultInjected("kill-worker", "worker:1")), (8.0, Calibrated({"worker:0": 2e6})), (9.0, Restored(1, 0)),
    (10.0, StoppedEarly("train", 12, 7, 5)),
    (11.0, FiguresComputed("test", REGRESSION, counts=COUNTS, mix_ups=MIX_UPS)),
]  # fmt: skip


def test_every_event_of_the_file_comes_back_as_it_was() -> None:
    runs = [whole(), pi()]
    found = [stamped for played in runs for stamped in (*played.kept, *events_of(played.state, 60.0))] + ONE_OF_EACH
    found += [(70.0, Ended("failed", "x")), (71.0, Resumed(70.0)), (72.0, KEPT["cut"](4))]  # type: ignore[call-arg, arg-type]
    assert {type(event) for _, event in found} == set(KEPT.values())
    for at, event in found:
        line = line_of(event, at, STARTED)
        assert event_of(line) == (at, event)
        written = json.loads(line)
        assert written.keys() == {"event", "time", "seconds", *(field.name for field in fields(event))}
        assert KEPT[written["event"]] is type(event)


def test_an_epoch_is_a_line_with_what_a_script_wants(tmp_path: Path) -> None:
    kept(whole(), tmp_path, 60.0)
    lines = [json.loads(line) for line in (tmp_path / NAME).read_text().splitlines()]
    (found,) = [line for line in lines if line["event"] == "epoch"]
    assert found == {
        "event": "epoch", "time": "2026-01-01T00:01:00.000+00:00", "seconds": 60.0, "stage": "train", "epoch": 1,
        "loss": 0.5, "accuracy": 0.8, "rate": 0.01, "windows_per_second": 20.0, "seconds_left": 12.0,
        "validation": {**FIGURES.describe(), "accuracy": 0.75, "f1_macro": 0.7, "f1_weighted": 0.7,
                       "precision_macro": 0.7, "precision_weighted": 0.7, "recall_macro": 0.7,
                       "recall_weighted": 0.7, "loss": 0.6, "others": {}},
    }  # fmt: skip


def test_another_coordinator_goes_on(tmp_path: Path) -> None:
    kept(whole(), tmp_path, 62.0)
    found = list(read_events(tmp_path))
    latest = max(at for at, _ in found)
    assert latest == 62.0
    second = Played(replay(found))
    second.emit(Resumed(latest), 100.0)
    second.look(101.0, worker0="idle", worker1="absent")
    second.look(102.0, worker0="idle", worker1="idle")
    second.work(102, 120)
    second.emit(ended(2), 120.0)
    view = second.view(120.0)
    assert [event.text for event in view.events if event.kind == "resumed"] == [
        "another coordinator continues, 38 s after the last sign of life"
    ]
    gap = [sample for sample in view.samples if 62.0 <= sample.seconds <= 100.0]
    assert [(sample.seconds, sample.windows_per_second, sample.live) for sample in gap] == [
        (62.0, 0.0, 0), (100.0, 0.0, 0)
    ]  # fmt: skip
    away = [span for span in view.spans if span.task == "worker:0" and span.state == "away"]
    assert [(span.begin_seconds, span.end_seconds) for span in away] == [(62.0, 101.0)]
    worker = next(role for node in view.nodes for role in node.roles if role.task == "worker:1")
    assert worker.departures == 1
    assert worker.windows > 390
    assert view.train is not None
    assert [found.epoch for found in view.train.epochs] == [1, 2]


def test_epochs_behind_the_checkpoint_are_gone_and_their_lines_stay() -> None:
    played = whole()
    for number in (2, 3):
        played.emit(ended(number), 60.0 + number)
    played.emit(Restored(1, 0), 100.0)
    view = played.view(101.0)
    assert view.train is not None
    assert view.train.epochs == (epoch(1, 60.0),)
    assert [event.text[:14] for event in view.events if "epoch" in event.text] == [
        f"train: epoch {number}" for number in (1, 2, 3)
    ]
    played.emit(ended(2), 102.0)
    again = [event for _, event in events_of(played.state, 103.0) if isinstance(event, EpochEnded)]
    assert [event.epoch for event in again] == [1, 2]


A_RUN = whole()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.binary(max_size=40))
def test_a_damaged_file_gives_what_is_whole(cut: int, noise: bytes) -> None:
    lines = b"".join(line_of(event, at, STARTED) for at, event in events_of(A_RUN.state, 60.0))
    place = cut % len(lines)
    state = replay(events_in((lines[:place] + noise + lines[place:]).splitlines()))
    json.dumps(finite(state.view(60.0).__dict__), default=lambda part: part.__dict__)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("worker:0"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["worker:0", "x"]), inner, max_size=2),
    max_leaves=5,
)  # fmt: skip


TRUE_LINES = [*A_RUN.kept, *events_of(A_RUN.state, 60.0), *ONE_OF_EACH]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_foreign_line_is_an_event_of_its_types_or_none(data: st.DataObject) -> None:
    """Every field of a true line is replaced by something else: it is refused, or harmless."""
    at, event = data.draw(st.sampled_from(TRUE_LINES))
    line = json.loads(line_of(event, at, STARTED))
    line[data.draw(st.sampled_from([key for key in line if key != "event"]))] = data.draw(VALUES)
    found = [stamped for stamped in [event_of(json.dumps(line).encode())] if stamped is not None]
    state = replay(found, A_RUN.state)
    json.dumps(finite(state.view(60.0).__dict__), default=lambda part: part.__dict__)


@pytest.mark.parametrize(
    "line",
    ['{"event": "sampled", "time": "2026-01-01T00:00:00Z", "seconds": 1', "[]", "null", "\0", "[" * 100_000,
     '{"event": "sampled", "time": "2026-01-01T00:00:00Z", "seconds": "x"}', '{"event": 7}', '{"event": ""}',
     '{"event": "counted", "time": "2026-01-01T00:00:00Z", "seconds": 1.0, "roles": 3}',
     '{"event": "from tomorrow", "time": "2026-01-01T00:00:00Z", "seconds": 1.0}',
     '{"event": "noted", "time": "2026-01-01T00:00:00Z", "seconds": 1e300, "kind": "x", "text": "x"}',
     '{"event": "noted", "time": "9999-12-31T23:59:59Z", "seconds": 1.0, "kind": "x", "text": "x"}',
     json.dumps({"event": "noted", "time": "2026-01-01T00:00:00Z", "seconds": 1.0, "kind": "x", "text": "x" * 10**6})],
)  # fmt: skip
def test_a_line_that_cannot_be_understood_is_left_out(tmp_path: Path, line: str) -> None:
    played = whole()
    kept(played, tmp_path, 60.0)
    with (tmp_path / NAME).open("a") as stream:
        stream.write(line)
    assert read_run(tmp_path).samples == played.view(60.0).samples
    assert not any(event.kind == "x" for event in read_run(tmp_path).events)


def test_a_matrix_that_is_none_is_left_out() -> None:
    line = json.loads(line_of(whole().kept[-1][1], 1.0, STARTED))
    assert line["event"] == "figures"
    assert event_of(json.dumps({**line, "rows": [[1, 2]]}).encode()) is None
    with pytest.raises(ValueError, match="expected 2 rows and columns"):
        FiguresComputed("test", FIGURES, ("a", "b"), ((1, 2),))


def test_a_history_that_is_no_file_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NAME)
    assert list(read_events(tmp_path)) == []
    (tmp_path / NAME).unlink()
    (tmp_path / NAME).mkdir()
    assert list(read_events(tmp_path)) == []


def test_the_file_stays_small(tmp_path: Path) -> None:
    played = begun()
    file = HistoryFile(tmp_path, STARTED, lambda: events_of(played.state, 0.0), largest=60_000)
    for round_ in range(300):
        played.work(10 * round_, 10 * round_ + 10)
        assert file.write(taken(played))
        whole_bytes = sum(len(line_of(event, at, STARTED)) for at, event in events_of(played.state, 0.0))
        assert (tmp_path / NAME).stat().st_size < 2 * whole_bytes + 60_000
    assert replay(read_events(tmp_path)).samples.kept == played.state.samples.kept


def test_a_disk_that_takes_nothing_for_a_while_costs_nothing_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = begun()
    file = kept(played, tmp_path, 1.0)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    def refused(*_: Any) -> None:
        raise ClusterError("full")

    with monkeypatch.context() as broken:
        broken.setattr(os, "write", full)
        broken.setattr(history, "atomic_write", refused)
        for second in range(5):
            played.work(second + 1, second + 2)
            assert not file.write(taken(played))
    assert file.write([])
    assert replay(read_events(tmp_path)).samples.kept == played.state.samples.kept


def test_half_a_write_is_made_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = begun()
    file = kept(played, tmp_path, 1.0)
    played.work(1, 4)
    write = os.write
    with monkeypatch.context() as broken:
        broken.setattr(os, "write", lambda descriptor, content: write(descriptor, content[: len(content) // 2]))
        assert not file.write(taken(played))
    assert read_run(tmp_path).run == RUN
    assert file.write([])
    assert read_run(tmp_path).samples == played.view(4.0).samples


RESULT: dict[str, Any] = {
    "schema": 1, "job": "train", "status": "done", "reason": None, "cluster": "bench", "mode": "sync",
    "dataset": {"labels": ["sit", "walk"]}, "model": {"name": "thesis", "parameters": 1234},
    "settings": {"epochs": 3}, "final": {"accuracy": 0.9, "loss": 0.3}, "confusion": [[3, 1], [0, 6]],
    "updates": {"applied": 30, "duplicates_dropped": 2, "rolled_back": 1}, "resumptions": 1,
    "wire": {"pull_bytes_per_step": 10.0, "push_bytes_per_step": 20.0},
    "staleness": {"mean": 0.5, "maximum": 2.0}, "elapsed_seconds": 61.0,
}  # fmt: skip


def test_a_finished_run_with_its_history(tmp_path: Path) -> None:
    played = whole()
    played.emit(Ended("done"), 61.0)
    kept(played, tmp_path, 61.0)
    (tmp_path / "result.json").write_text(json.dumps(RESULT))
    view = read_run(tmp_path)
    assert (view.state, view.reason, view.elapsed_seconds) == ("done", None, 61.0)
    assert view.confusion is not None
    assert (view.confusion.split, view.confusion.labels, view.confusion.rows[0]) == ("test", ("sit", "walk"), (3, 1))
    assert view.figures["test"] == {"accuracy": 0.9, "loss": 0.3}
    assert view.train is not None
    assert (view.train.updates_applied, view.train.pull_bytes_per_step, view.train.parameters) == (30, 10.0, 1234)
    assert view.windows_per_second == pytest.approx(17.0, rel=0.2)


def test_a_run_that_was_broken_off(tmp_path: Path) -> None:
    kept(whole(), tmp_path, 60.0)
    view = read_run(tmp_path)
    assert (view.state, view.elapsed_seconds) == ("failed", 60.0)
    assert view.reason is not None
    assert "was interrupted" in view.reason


def test_a_result_of_a_coordinator_that_another_one_followed_is_none(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps({**RESULT, "status": "failed", "reason": "ps:0 is gone"}))
    played = whole()
    played.emit(Ended("failed", "ps:0 is gone"), 61.0)
    played.emit(Resumed(61.0), time.time() + 60.0 - STARTED.timestamp())
    kept(played, tmp_path, 120.0)
    view = read_run(tmp_path)
    assert view.reason is not None
    assert "was interrupted" in view.reason


def test_a_run_without_a_history(tmp_path: Path) -> None:
    folder = tmp_path / "20260101T000000Z-train"
    folder.mkdir()
    (folder / "result.json").write_text(json.dumps(RESULT))
    (folder / NAME).write_text('{"record": "begin", "schema": 1, "cluster": "bench"}\n')
    view = read_run(folder)
    assert (view.cluster, view.job, view.run, view.state) == ("bench", "train", folder.name, "done")
    assert view.started.startswith("2026-01-01T00:00:00")
    assert view.train is not None
    assert (view.train.mode, view.train.model, view.train.planned_epochs) == ("sync", "thesis", 3)
    assert view.train.staleness is not None
    assert view.train.staleness.mean == 0.5
    assert view.elapsed_seconds == 61.0


def test_a_regression_without_a_history(tmp_path: Path) -> None:
    result = {
        **RESULT, "dataset": {"labels": [], "unit": "examples", "task": "regression"}, "confusion": [],
        "stopped_early": {"epoch": 12, "patience": 5}, "selected": {"epoch": 7},
        "final": {"loss": 2.0, "accuracy": None, "mae": 1.5, "odd": "x", "huge": 10**400},
    }  # fmt: skip
    (tmp_path / "result.json").write_text(json.dumps(result))
    view = read_run(tmp_path)
    assert (view.unit, view.task_type, view.confusion, view.classes) == ("examples", "regression", None, None)
    assert view.figures == {"test": {"loss": 2.0, "mae": 1.5}}
    assert view.train is not None
    assert view.train.stopped_early == "no better for 5 epochs (best: epoch 7)"


def test_a_pi_run_without_a_history(tmp_path: Path) -> None:
    result = {"job": "pi", "status": "done", "reason": None, "cluster": "bench", "planned_samples": 100,
              "samples": 100, "estimate": 3.1, "standard_error": 0.1, "elapsed_seconds": 4.0}  # fmt: skip
    (tmp_path / "result.json").write_text(json.dumps(result))
    view = read_run(tmp_path)
    assert view.pi is not None
    assert [(point.samples, point.seconds) for point in view.pi.points] == [(100, 4.0)]


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected the folder of a run"):
        read_run(tmp_path)
    (tmp_path / "coordinator.log").touch()
    assert read_run(tmp_path).state == "failed"
