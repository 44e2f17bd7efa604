"""From preparation to result file, with jobs that do nothing but end in different ways."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ClusterError, ExitCode, UsageError
from cluster.jobs import lifecycle
from cluster.jobs.cancel import Cancel, Cancelled
from cluster.jobs.job_metrics import CoordinatorMetrics
from cluster.jobs.lifecycle import Crashed, Job, conduct
from cluster.jobs.run_folder import RunFolder, unfinished
from cluster.status.events import Ended, Event, Opened
from cluster.status.stream import Stream


def nothing(*_: object) -> None:
    pass


class Small(Job):
    """A job that does what it is made with."""

    name = "pi"

    def __init__(self, prepare: Callable[[], None] = nothing, run: Callable[[RunFolder], None] = nothing) -> None:
        self._prepare, self._run = prepare, run
        self.done = 0
        self.metrics = CoordinatorMetrics()
        self.heard: list[Event] = []
        self.stream = Stream(self.heard.append)

    def prepare(self) -> None:
        self._prepare()

    def run(self, folder: RunFolder) -> None:
        self.done = 1
        self._run(folder)

    def complete(self) -> bool:
        return self.done == 2

    def result(self) -> dict[str, Any]:
        return {"samples": self.done}


def raising(problem: Exception) -> Callable[..., None]:
    def end(*_: object) -> None:
        raise problem

    return end


def stored(runs: Path) -> dict[str, Any]:
    (folder,) = runs.iterdir()
    content: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return content


def test_a_job_that_ends_well(tmp_path: Path) -> None:
    job = Small()
    path, result = conduct(job, tmp_path, Cancel())
    assert job.heard == [Opened(path.parent.name, "pi"), Ended("done")]
    assert json.loads(path.read_text()) == result
    assert result == {"schema": 1, "job": "pi", "status": "done", "reason": None, "samples": 1}
    assert "pi: done" in (path.parent / "coordinator.log").read_text()
    assert "pi on unknown" in (path.parent / "report.html").read_text()


def test_bad_input_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        conduct(Small(prepare=raising(UsageError("no such file"))), tmp_path, Cancel())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stage", ["prepare", "run"])
def test_a_cancel_leaves_what_there_is(tmp_path: Path, stage: str) -> None:
    cancel = Cancel()

    def stop(*_: object) -> None:
        cancel._asked.set()
        raise Cancelled

    conduct(Small(**{stage: stop}), tmp_path, cancel)
    assert stored(tmp_path) == {
        "schema": 1, "job": "pi", "status": "cancelled", "reason": None, "samples": int(stage == "run")
    }  # fmt: skip


def test_a_cancel_that_comes_too_late_cancels_nothing(tmp_path: Path) -> None:
    cancel = Cancel()
    job = Small()

    def end(_: RunFolder) -> None:
        cancel._asked.set()
        job.done = 2

    job._run = end
    assert conduct(job, tmp_path, cancel)[1]["status"] == "done"


def content_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below: its bytes, and when it was last written."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_second_writer_is_refused_and_leaves_the_live_run_as_it_is(tmp_path: Path) -> None:
    """The second one used to rewrite the history and to record its own failure in the live run."""
    second = Small()

    def alive(folder: RunFolder) -> None:
        for name in ("history.jsonl", "result.json", "checkpoints/progress"):
            (folder.path / name).parent.mkdir(exist_ok=True)
            (folder.path / name).write_text(name)
        before = content_of(folder.path)
        watched: list[str] = []

        class Seeing(lifecycle.Watch):
            def __enter__(self) -> "Seeing":
                watched.append("entered")
                return self

        with pytest.raises(ClusterError, match=rf"only one who writes there, but process {os.getpid()} does"):
            conduct(second, tmp_path, Cancel(), resumed=folder.path, watch=Seeing())
        assert content_of(folder.path) == before
        assert watched == []

    path, _ = conduct(Small(run=alive), tmp_path, Cancel())
    assert second.done == 0
    assert second.heard == []
    assert (path.parent / "history.jsonl").read_text() == "history.jsonl"
    assert stored(tmp_path)["status"] == "done"
    with pytest.raises(UsageError, match="is finished"):
        conduct(second, tmp_path, Cancel(), resumed=path.parent)
    path.unlink()
    conduct(second, tmp_path, Cancel(), resumed=path.parent)
    assert second.done == 1, "the first one has ended, without its result"


def test_a_failure_is_recorded_and_raised(tmp_path: Path) -> None:
    job = Small(run=raising(ClusterError("ps:0 is gone")))
    with pytest.raises(ClusterError, match="ps:0 is gone"):
        conduct(job, tmp_path, Cancel())
    assert job.heard[1:] == [Ended("failed", "ps:0 is gone")]
    assert stored(tmp_path)["status"] == "failed"
    assert stored(tmp_path)["reason"] == "ps:0 is gone"
    (folder,) = tmp_path.iterdir()
    assert "ps:0 is gone" in (folder / "report.html").read_text()


@pytest.mark.parametrize("stage", ["prepare", "run"])
def test_a_bug_is_one_line_for_the_user_and_a_traceback_in_the_log(
    tmp_path: Path, stage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Crashed) as caught:
        conduct(Small(**{stage: raising(IndexError("17\nis too much"))}), tmp_path, Cancel())
    (folder,) = tmp_path.iterdir()
    assert caught.value.exit_code == ExitCode.FAILED
    assert str(caught.value).startswith("pi failed on something unforeseen, IndexError: 17.")
    assert str(folder / "coordinator.log") in str(caught.value)
    assert "\n" not in str(caught.value)
    assert stored(tmp_path)["status"] == "failed"
    log = (folder / "coordinator.log").read_text()
    assert "Traceback (most recent call last)" in log
    assert "IndexError: 17" in log
    assert "Traceback" not in capsys.readouterr().err


def test_a_result_that_cannot_be_written_does_not_hide_why_the_job_failed(tmp_path: Path) -> None:
    def end(folder: RunFolder) -> None:
        (folder.path / "result.json").mkdir()  # nothing can be renamed onto a folder
        raise ClusterError("ps:0 is gone")

    with pytest.raises(ClusterError, match="ps:0 is gone"):
        conduct(Small(run=end), tmp_path, Cancel())


def test_a_run_that_is_told_of_can_be_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(lifecycle.RUN_FILE, str(tmp_path / "told"))

    def refused(_path: Path, content: bytes) -> None:
        if content.strip() == str(unfinished(Path(content.decode().strip()))).encode():
            raise ClusterError("killed here")

    monkeypatch.setattr(lifecycle, "atomic_write", refused)
    with pytest.raises(ClusterError, match="killed here"):
        conduct(Small(), tmp_path / "runs", Cancel())


def test_a_log_that_no_disk_takes_costs_neither_result_nor_reason(tmp_path: Path) -> None:
    for name, run, state in (("a", nothing, "done"), ("b", raising(ClusterError("no workers left")), "failed")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "coordinator.log").symlink_to("/dev/full")
        try:
            conduct(Small(run=run), tmp_path, Cancel(), resumed=folder)
        except ClusterError as problem:
            ended = str(problem)
        else:
            ended = ""
        assert ended == ("no workers left" if state == "failed" else "")
        assert json.loads((folder / "result.json").read_text())["status"] == state
