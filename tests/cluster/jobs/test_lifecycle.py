"""From preparation to result file, with jobs that do nothing but end in different ways."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.jobs import lifecycle
from cluster.jobs.cancel import JobCancelled
from cluster.jobs.lifecycle import Crashed, Watch
from cluster.jobs.run_folder import RunFolder, unfinished
from core.checkpoints import Superseded
from core.ground.errors import ClusterError, ExitCode, UsageError
from core.inventory import Inventory
from core.status.events import Ended, Opened
from tests.cluster.jobs.kit import PlayedJob, Result, inventory_in, nothing, raising

GONE = ClusterError("ps:0 is gone")


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    return inventory_in(tmp_path)


def stored(runs: Path) -> Result:
    (path,) = runs.glob("*/result.json")
    content: Result = json.loads(path.read_text())
    return content


def text_of(runs: Path, name: str) -> str:
    (path,) = runs.glob(f"*/{name}")
    return path.read_text()


def test_a_job_that_ends_well(inventory: Inventory, runs: Path) -> None:
    job = PlayedJob(inventory)
    run, result = job.conducted(runs)
    assert job.heard == [Opened(run.name, "train", 1234, job.unit, job.task_type), Ended("done")]
    assert stored(runs) == result
    assert result == {
        "schema": 1,
        "job": "train",
        "status": "done",
        "reason": None,
        **job.result(),
    }
    assert "train: done" in text_of(runs, "coordinator.log")
    assert "train on unknown" in text_of(runs, "report.html")


@pytest.mark.parametrize("stage", ["prepare", "run"])
def test_a_cancel_leaves_what_there_is(inventory: Inventory, runs: Path, stage: str) -> None:
    def stop(*_: object) -> None:
        job.cancel._asked.set()
        raise JobCancelled

    job = PlayedJob(inventory, **{stage: stop})
    job.conducted(runs)
    found = stored(runs)
    assert (found["status"], found["reason"], found["begun"]) == ("cancelled", None, stage == "run")


def test_a_cancel_that_comes_too_late_cancels_nothing(inventory: Inventory, runs: Path) -> None:
    job = PlayedJob(inventory, lambda _: job.cancel._asked.set())
    job.complete_after_all = True
    assert job.conducted(runs)[1]["status"] == "done"


def content_of(folder: Path) -> dict[Path, tuple[bytes, int]]:
    """Every file below: its bytes, and when it was last written."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


class Seeing(Watch):
    """Notes whether it was entered."""

    entered = False

    def __enter__(self) -> "Seeing":
        self.entered = True
        return self


def test_a_second_writer_is_refused_and_leaves_the_live_run_as_it_is(
    inventory: Inventory, runs: Path
) -> None:
    """The second one used to rewrite the history and to record its own failure in the live run."""
    second = PlayedJob(inventory)

    def alive(folder: RunFolder) -> None:
        (folder.path / "checkpoints").mkdir()
        for name in ("history.jsonl", "result.json", "checkpoints/progress"):
            (folder.path / name).write_text(name)
        before = content_of(folder.path)
        seeing = Seeing()
        only = rf"only one who writes there, but process {os.getpid()} does"
        with pytest.raises(ClusterError, match=only):
            second.conducted(runs, folder.path, seeing)
        assert content_of(folder.path) == before
        assert not seeing.entered

    run, result = PlayedJob(inventory, alive).conducted(runs)
    assert (second.begun, second.heard) == (False, [])
    assert text_of(runs, "history.jsonl") == "history.jsonl"
    assert result["status"] == "done"
    with pytest.raises(UsageError, match="is finished"):
        second.conducted(runs, run)
    (run / "result.json").unlink()
    second.conducted(runs, run)
    assert second.begun, "the first one has ended, without its result"


def test_a_failure_is_recorded_and_raised(inventory: Inventory, runs: Path) -> None:
    job = PlayedJob(inventory, raising(GONE))
    with pytest.raises(ClusterError, match="ps:0 is gone"):
        job.conducted(runs)
    assert job.heard[1:] == [Ended("failed", "ps:0 is gone")]
    assert (stored(runs)["status"], stored(runs)["reason"]) == ("failed", "ps:0 is gone")
    assert "ps:0 is gone" in text_of(runs, "report.html")


@pytest.mark.parametrize("stage", ["prepare", "run"])
def test_a_bug_is_one_line_for_the_user_and_a_traceback_in_the_log(
    inventory: Inventory, runs: Path, stage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broken: dict[str, Any] = {stage: raising(IndexError("17\nis too much"))}
    with pytest.raises(Crashed) as caught:
        PlayedJob(inventory, **broken).conducted(runs)
    said = str(caught.value)
    assert caught.value.exit_code == ExitCode.FAILED
    assert said.startswith("train failed on something unforeseen, IndexError: 17.")
    assert "\n" not in said
    (log,) = runs.glob("*/coordinator.log")
    assert str(log) in said
    assert stored(runs)["status"] == "failed"
    assert "Traceback (most recent call last)" in log.read_text()
    assert "IndexError: 17" in log.read_text()
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EROFS]
)
def test_a_disk_that_refuses_is_one_line_and_no_bug(
    inventory: Inventory, runs: Path, number: int
) -> None:
    words = os.strerror(number)
    problem = OSError(number, words, "/some/model")
    with pytest.raises(
        ClusterError, match=rf"^/some/model: the disk refused it \({words}\): "
    ) as found:
        PlayedJob(inventory, raising(problem)).conducted(runs)
    assert not isinstance(found.value, Crashed)
    assert stored(runs)["reason"] == str(found.value)
    assert "Traceback" not in text_of(runs, "coordinator.log")


def test_a_writer_that_was_superseded_leaves_the_result_of_the_other(
    inventory: Inventory, runs: Path
) -> None:
    def taken_over(folder: RunFolder) -> None:
        folder.write_result({"schema": 1, "status": "done"})
        (folder.path / ".lock").write_text("77\n9\n")

    with pytest.raises(Superseded):
        PlayedJob(inventory, taken_over).conducted(runs)
    assert stored(runs) == {"schema": 1, "status": "done"}


def test_a_result_that_cannot_be_written_does_not_hide_why_the_job_failed(
    inventory: Inventory, runs: Path
) -> None:
    def end(folder: RunFolder) -> None:
        (folder.path / "result.json").mkdir()  # nothing can be renamed onto a folder
        raise GONE

    with pytest.raises(ClusterError, match="ps:0 is gone"):
        PlayedJob(inventory, end).conducted(runs)


def test_a_run_that_is_told_of_can_be_gone_on_with(
    inventory: Inventory, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(lifecycle.RUN_FILE, str(runs / "told"))

    def refused(_path: Path, content: bytes) -> None:
        if content.strip() == str(unfinished(Path(content.decode().strip()))).encode():
            raise ClusterError("killed here")

    monkeypatch.setattr(lifecycle, "atomic_write", refused)
    with pytest.raises(ClusterError, match="killed here"):
        PlayedJob(inventory).conducted(runs)


@pytest.mark.parametrize(("run", "ended"), [(nothing, ""), (raising(GONE), str(GONE))])
def test_a_log_that_no_disk_takes_costs_neither_result_nor_reason(
    inventory: Inventory, runs: Path, run: Callable[..., None], ended: str
) -> None:
    folder = runs / "20260101T000000Z-train"
    folder.mkdir(parents=True)
    (folder / "coordinator.log").symlink_to("/dev/full")
    said = ""
    try:
        PlayedJob(inventory, run).conducted(runs, folder)
    except ClusterError as problem:
        said = str(problem)
    assert said == ended
    assert stored(runs)["status"] == ("failed" if ended else "done")
