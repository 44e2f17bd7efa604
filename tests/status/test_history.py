"""A run on disk: what comes back is what was there, whatever happened to the file."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import ClusterError, UsageError
from cluster.status import history_file
from cluster.status.history import read_run
from cluster.status.history_file import NAME, HistoryFile, read_records
from cluster.status.records import everything, facts, finite, state_of, take
from cluster.status.roles import Seen
from cluster.status.state import RunState
from cluster.status.view import RunView
from tests.status.played_run import RUN, begun, epoch, fresh, pi, played, work


def kept(state: RunState, folder: Path, seconds: float) -> HistoryFile:
    file = HistoryFile(folder, lambda: everything(state, seconds))
    assert file.write([])
    return file


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


def test_everything_comes_back() -> None:
    for state in (played(), pi()):
        found = state_of(json.loads(json.dumps(record)) for record in everything(state, 60.0))
        assert found is not None
        same(found[0].view(60.0), state.view(60.0))
        assert found[1] == 60.0


def test_what_was_appended_one_by_one_comes_back_too(tmp_path: Path) -> None:
    state = fresh()
    state.began(RUN, 0.5)
    file = kept(state, tmp_path, 0.5)
    whole = played()
    file.write([*whole.records, facts(whole, 60.0)])
    assert "begin" in (tmp_path / NAME).read_text().splitlines()[0]
    found = state_of(read_records(tmp_path))
    assert found is not None
    assert found[0].view(60.0).samples == whole.view(60.0).samples
    assert found[0].view(60.0).spans == whole.view(60.0).spans


def test_another_coordinator_goes_on(tmp_path: Path) -> None:
    first = played()
    kept(first, tmp_path, 62.0)
    second = fresh()
    latest = take(second, read_records(tmp_path))
    assert latest == 62.0
    second.run = RUN
    second.resumed(latest, 100.0)
    second.saw({"worker:0": Seen("idle", 0), "worker:1": Seen("absent", 0)}, 101.0)
    second.saw({"worker:0": Seen("idle", 0), "worker:1": Seen("idle", 0)}, 102.0)
    work(second, 102, 120)
    second.epoch(epoch(2, 120.0))
    view = second.view(120.0)
    assert [event.text for event in view.events if event.kind == "resumed"] == [
        "another coordinator goes on, 38 s after the last sign of life"
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


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.binary(max_size=40))
def test_a_damaged_file_gives_what_is_whole(cut: int, noise: bytes) -> None:
    lines = b"".join(json.dumps(record).encode() + b"\n" for record in everything(played(), 60.0))
    place = cut % len(lines)
    records = list(history_file._records((lines[:place] + noise + lines[place:]).splitlines()))
    found = state_of(records)
    if found is not None:
        json.dumps(finite(found[0].view(60.0).__dict__), default=lambda part: part.__dict__)


@pytest.mark.parametrize(
    "line",
    ['{"record": "sample", "seconds": 1', '{"record": "sample", "seconds": "x"}', '{"record": 7}', "[]", "null", "\0",
     '{"record": "facts", "seconds": 1.0, "roles": 3}', '{"record": "from tomorrow"}', "[" * 100_000],
)  # fmt: skip
def test_a_line_that_cannot_be_understood_is_left_out(tmp_path: Path, line: str) -> None:
    state = played()
    kept(state, tmp_path, 60.0)
    with (tmp_path / NAME).open("a") as stream:
        stream.write(line)
    assert read_run(tmp_path).samples == state.view(60.0).samples


def test_the_file_stays_small(tmp_path: Path) -> None:
    state = begun()
    file = HistoryFile(tmp_path, lambda: everything(state, 0.0), largest=60_000)
    for round_ in range(300):
        work(state, 10 * round_, 10 * round_ + 10)
        records, state.records = [*state.records, facts(state, 0.0)], []
        assert file.write(records)
        bound = 2 * sum(len(json.dumps(record)) for record in everything(state, 0.0)) + 60_000
        assert (tmp_path / NAME).stat().st_size < bound
    found = state_of(read_records(tmp_path))
    assert found is not None
    assert found[0].samples.kept == state.samples.kept


def test_a_disk_that_takes_nothing_for_a_while_costs_nothing_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = begun()
    file = kept(state, tmp_path, 1.0)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    def refused(*_: Any) -> None:
        raise ClusterError("full")

    with monkeypatch.context() as broken:
        broken.setattr(os, "write", full)
        broken.setattr(history_file, "atomic_write", refused)
        for second in range(5):
            work(state, second + 1, second + 2)
            assert not file.write(state.records)
            state.records.clear()
    assert file.write([])
    found = state_of(read_records(tmp_path))
    assert found is not None
    assert found[0].samples.kept == state.samples.kept


def test_half_a_write_is_made_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = begun()
    file = kept(state, tmp_path, 1.0)
    work(state, 1, 4)
    write = os.write
    with monkeypatch.context() as broken:
        broken.setattr(os, "write", lambda descriptor, content: write(descriptor, content[: len(content) // 2]))
        assert not file.write(state.records)
    assert read_run(tmp_path).run == RUN
    assert file.write([])
    assert read_run(tmp_path).samples == state.view(4.0).samples


RESULT: dict[str, Any] = {
    "schema": 1, "job": "train", "status": "done", "reason": None, "cluster": "bench", "mode": "sync",
    "dataset": {"labels": ["sit", "walk"]}, "model": {"name": "thesis", "parameters": 1234},
    "settings": {"epochs": 3}, "final": {"accuracy": 0.9, "loss": 0.3}, "confusion": [[3, 1], [0, 6]],
    "updates": {"applied": 30, "duplicates_dropped": 2, "rolled_back": 1}, "resumptions": 1,
    "wire": {"pull_bytes_per_step": 10.0, "push_bytes_per_step": 20.0},
    "staleness": {"mean": 0.5, "maximum": 2.0}, "elapsed_seconds": 61.0,
}  # fmt: skip


def test_a_finished_run_with_its_history(tmp_path: Path) -> None:
    state = played()
    state.end("done", None, 61.0)
    kept(state, tmp_path, 61.0)
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
    kept(played(), tmp_path, 60.0)
    view = read_run(tmp_path)
    assert (view.state, view.elapsed_seconds) == ("failed", 60.0)
    assert view.reason is not None
    assert "broken off" in view.reason


def test_a_result_of_a_coordinator_that_another_one_followed_is_none(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps({**RESULT, "status": "failed", "reason": "ps:0 is gone"}))
    state = played()
    state.end("failed", "ps:0 is gone", 61.0)
    state.resumed(61.0, time.time() + 60.0 - state.started.timestamp())
    kept(state, tmp_path, 120.0)
    view = read_run(tmp_path)
    assert view.reason is not None
    assert "broken off" in view.reason


def test_a_run_from_before_there_were_histories(tmp_path: Path) -> None:
    folder = tmp_path / "20260101T000000Z-train"
    folder.mkdir()
    (folder / "result.json").write_text(json.dumps(RESULT))
    line = {
        "time": "2026-01-01T00:00:30.000+00:00", "stage": "train", "epoch": 1, "loss": 0.5, "accuracy": 0.8,
        "rate": 0.01, "windows_per_second": 20.0, "seconds_left": 3.0, "validation": {"accuracy": 0.7, "loss": 0.6},
    }  # fmt: skip
    (folder / "events.jsonl").write_text(json.dumps(line) + '\n{"status": "failed"}\nhalf')
    view = read_run(folder)
    assert (view.cluster, view.job, view.run, view.state) == ("bench", "train", folder.name, "done")
    assert view.train is not None
    assert (view.train.mode, view.train.model, view.train.planned_epochs) == ("sync", "thesis", 3)
    assert [(found.seconds, found.validation_accuracy) for found in view.train.epochs] == [(30.0, 0.7)]
    assert view.train.staleness is not None
    assert view.train.staleness.mean == 0.5
    assert view.elapsed_seconds == 61.0


def test_a_pi_from_before_there_were_histories(tmp_path: Path) -> None:
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
