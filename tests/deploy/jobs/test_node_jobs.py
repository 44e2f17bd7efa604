"""Jobs from the operator's side, on a node that is this machine."""

import io
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cluster.errors import ClusterError, ExitCode, UsageError
from deploy.cluster.connector import NodeUnreachableError
from deploy.jobs import attached_job
from deploy.jobs.node_job.records import JobState, is_job_id
from deploy.jobs.request import first_id, request_of
from deploy.jobs.run_archive import pack_command, unpack
from tests.deploy.job_node import JobNode
from tests.deploy.playing import eventually


@pytest.fixture
def node(tmp_path: Path) -> Iterator[JobNode]:
    made = JobNode(tmp_path)
    yield made
    made.end()


def test_a_job_runs_there_and_its_result_comes_here(node: JobNode, capsys: pytest.CaptureFixture[str]) -> None:
    node.play("0")
    assert attached_job.run_attached(node.jobs("jobs.train.epochs=3"), "train", ["--quiet"]) == ExitCode.DONE
    out, err = capsys.readouterr()
    result = node.folder / "here" / "runs" / "20261121T223000Z-train" / "result.json"
    assert out == f"result: {result}\n"
    assert result.exists()
    assert (result.parent / "model" / "model.json").exists()
    assert not (result.parent / "checkpoints").exists()
    assert re.match(
        r"job \d{8}T\d{4}-train runs on rpi11; Ctrl-C leaves it running\nepoch 0\nepoch 1\nepoch 2\ntrain: done\n$", err
    )
    (record,) = node.jobs().records()
    folder = node.root.job(record.id)
    runs = str(node.folder / "mount" / "runs")
    assert node.asked() == [
        *("train", "--inventory", str(folder.inventory)),
        *("--set", "jobs.train.epochs=3", "--set", f'runs="{runs}"', "--quiet"),
    ]
    assert folder.inventory.read_text() == node.inventory.path.read_text()


def test_for_programs_the_result_is_printed(node: JobNode, capsys: pytest.CaptureFixture[str]) -> None:
    node.play("0")
    assert attached_job.run_attached(node.jobs(), "pi", ["--json"]) == 0
    out, err = capsys.readouterr()
    assert '"status": "done", "result_path": ' in out
    assert err.splitlines()[-1].startswith("result: ")
    assert "--json" not in node.asked()


def test_an_attached_job_ends_as_the_job_does(node: JobNode) -> None:
    node.play("1")
    assert attached_job.run_attached(node.jobs(), "train", []) == ExitCode.FAILED
    (record,) = node.jobs().records()
    assert record.state is JobState.FAILED
    lines: list[str] = []
    assert node.jobs().attach(record.id, lines.append, print, last_lines=2) == record
    assert lines[0] == "train: failed"
    assert len(lines) == 2


def test_ctrl_c_detaches_and_the_job_goes_on(
    node: JobNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    node.play("waits")
    jobs = node.jobs()
    with monkeypatch.context() as patched:
        patched.setattr(attached_job, "_show", interrupt)
        assert attached_job.run_attached(jobs, "train", []) == ExitCode.CANCELLED
    running = jobs.choose(None)
    assert running.state is JobState.RUNNING
    assert running.pid == node.pid(running.id)
    *_, last = capsys.readouterr().err.splitlines()
    path = node.inventory.path
    assert last == (
        f"job {running.id} continues; `fab job attach --job {running.id} --inventory {path}` watches it again, "
        f"`fab job cancel --job {running.id} --inventory {path}` ends it with its result so far"
    )
    node.until_it_waits()
    cancelled = jobs.cancel(running.id)
    assert (cancelled.state, cancelled.exit_code) == (JobState.CANCELLED, ExitCode.CANCELLED)
    assert attached_job.finish(jobs, cancelled) == ExitCode.CANCELLED


def test_a_second_job_is_refused_in_the_nodes_own_words_and_leaves_nothing(node: JobNode) -> None:
    node.play("waits")
    jobs = node.jobs()
    first = jobs.submit("train", [])
    with pytest.raises(ClusterError, match=rf"rpi11: the job was not begun: a job is running .*\({first}\): wait"):
        jobs.submit("pi", [])
    assert [record.id for record in jobs.records()] == [first]
    second = jobs.choose(None)
    assert (second.id, second.state) == (first, JobState.RUNNING)
    with pytest.raises(UsageError, match=f"--job other: the latest are {first}"):
        jobs.choose("other")
    node.until_it_waits()
    jobs.cancel(first)


def test_nothing_is_lost_or_repeated_when_the_connection_breaks(node: JobNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.jobs.node_jobs._RECONNECT_DELAYS_SECONDS", (0.0, 0.0))
    node.play("waits")
    jobs = node.jobs()
    name = jobs.submit("train", [])
    node.until_it_waits()
    node.shell.breaks = 3  # one line each
    lines: list[str] = []
    troubles: list[str] = []
    seen = threading.Event()

    def on_line(line: str) -> None:
        lines.append(line)
        if len(lines) == 3:
            seen.set()

    canceller = threading.Thread(target=lambda: (seen.wait(60), jobs.cancel(name)))
    canceller.start()
    record = jobs.attach(name, on_line, troubles.append)
    canceller.join()
    assert record.state is JobState.CANCELLED
    assert lines[:3] == ["epoch 0", "epoch 1", "epoch 2"]
    assert any(line.startswith("result: ") for line in lines)
    assert len(lines) == len(set(lines))
    assert troubles == ["rpi11: the connection broke"] * 3


def test_a_node_that_stays_away_is_told_and_the_job_goes_on(node: JobNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.jobs.node_jobs._RECONNECT_DELAYS_SECONDS", ())
    node.play("waits")
    jobs = node.jobs()
    name = jobs.submit("train", [])
    node.until_it_waits()
    node.shell.breaks = 1
    hint = rf"(?s)broke\njob {name} may still run; `fab job attach --job {name}"
    with pytest.raises(NodeUnreachableError, match=hint):
        attached_job.watch(jobs, name)
    jobs.cancel(name)


def test_a_job_whose_process_was_killed_says_how_to_go_on(node: JobNode, capsys: pytest.CaptureFixture[str]) -> None:
    node.play("waits")
    jobs = node.jobs()
    name = jobs.submit("train", [])
    node.until_it_waits()
    os.kill(node.pid(name), signal.SIGKILL)
    assert attached_job.watch(jobs, name) == ExitCode.FAILED
    assert jobs.choose(name).state is JobState.INTERRUPTED
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"job {name} was interrupted: its process is gone without a result; `fab job train --resume")
    assert f"--run runs/20261121T223000Z-train --inventory {node.inventory.path}" in last


def test_only_so_many_jobs_are_remembered(node: JobNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.jobs.node_jobs.KEPT_JOBS", 3)
    for day in range(1, 6):
        node.root.job(f"2026010{day}T0000-pi").path.mkdir(parents=True)
    node.play("0")
    name = node.jobs().submit("train", [])
    eventually(lambda: node.jobs().choose(name).state.ended, "the job's end")
    assert [record.id for record in node.jobs().records()] == ["20260104T0000-pi", "20260105T0000-pi", name]


def test_a_node_without_our_code_is_one_line(node: JobNode) -> None:
    (node.folder / "release" / "deploy").unlink()
    with pytest.raises(ClusterError, match=r"rpi11: its jobs cannot be listed: .*No module named.*fab deploy start"):
        node.jobs().records()


def test_ids_are_of_the_minute_and_never_two_alike() -> None:
    assert first_id("train", datetime(2026, 11, 21, 22, 30, 59, tzinfo=UTC)) == "20261121T2230-train"
    assert is_job_id("20261121T2230-train-2")


def test_runs_are_those_of_the_node(node: JobNode) -> None:
    flags = ["--json", "--resume", "runs/one/", "--chaos", "late:0.1"]
    request = request_of(node.inventory, "train", (), flags, "/mnt/runs")
    assert request.flags == ("--resume", "/mnt/runs/one", "--chaos", "late:0.1")
    assert request_of(node.inventory, "train", (), ["--resume", "--chaos", "x"], "/r").flags[:2] == (
        "--resume",
        "--chaos",
    )
    assert request.roles == {}  # mode: single
    assert request_of(node.inventory, "pi", (), (), "/r").roles == {
        "ps:0": "127.0.0.1:9200",
        "worker:0": "127.0.0.1:9201",
    }


def test_an_archive_writes_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "there" / "one").mkdir(parents=True)
    (tmp_path / "there" / "one" / "good").write_text("good")
    (tmp_path / "there" / "one" / "link").symlink_to("/etc/passwd")
    (tmp_path / "there" / "two").write_text("bad")
    names_of_all = "one two one/../two"
    archive = subprocess.run(
        f"tar -C {tmp_path}/there -P -czf - {names_of_all}", shell=True, capture_output=True, check=True
    ).stdout
    (tmp_path / "here" / "one").mkdir(parents=True)
    (tmp_path / "here" / "one" / "old").write_text("old")
    target = unpack(io.BytesIO(archive), "one", tmp_path / "here")
    assert sorted(path.name for path in target.iterdir()) == ["good"]
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["one"]
    with pytest.raises(ClusterError, match="the run cannot be kept here"):
        unpack(io.BytesIO(archive[: len(archive) // 2]), "one", tmp_path / "here")
    assert (target / "good").read_text() == "good"
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["one"]
    words = ["tar", "-C", "/r", "--exclude=a b/checkpoints", "--exclude=a b/runs/*/checkpoints", "-czf", "-", "--"]
    assert pack_command("/r/a b", checkpoints=False) == [*words, "a b"]


def test_the_checkpoints_of_a_sweep_s_runs_stay_there_too(tmp_path: Path) -> None:
    kept = ("runs/0001/x-train/result.json", "sweep.json")
    for name in (*kept, "runs/0001/x-train/checkpoints/update-1.json"):
        (tmp_path / "a-sweep" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "a-sweep" / name).touch()
    command = pack_command(str(tmp_path / "a-sweep"), checkpoints=False)
    packed = subprocess.run(command, check=True, capture_output=True).stdout
    target = unpack(io.BytesIO(packed), "a-sweep", tmp_path / "here")
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()) == sorted(kept)


def test_jobs_follow_one_another_also_when_nobody_watches(
    node: JobNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    node.play("0")
    jobs = node.jobs()
    order = [("pi", []), ("train", ["jobs.train.epochs=3"])]
    with monkeypatch.context() as patched:
        patched.setattr(attached_job, "_show", interrupt)
        assert attached_job.run_in_order(jobs, order, []) == ExitCode.CANCELLED
    first, second = (record.id for record in jobs.records())
    assert f"{first}, then {second}: on rpi11; Ctrl-C leaves them running" in capsys.readouterr().err
    eventually(lambda: jobs.choose(second).state is JobState.DONE, "the second job's end")
    assert "jobs.train.epochs=3" in node.asked()
    assert jobs.choose(first).state is JobState.DONE


def test_jobs_in_order_end_with_the_first_that_fails(node: JobNode, capsys: pytest.CaptureFixture[str]) -> None:
    node.play("1")
    jobs = node.jobs()
    assert attached_job.run_in_order(jobs, [("pi", []), ("train", [])], []) == ExitCode.FAILED
    eventually(lambda: all(record.state is JobState.FAILED for record in jobs.records()), "the end of both")
    assert len(capsys.readouterr().out.splitlines()) == 2  # which job, and its result


def test_a_job_that_was_submitted_before_is_followed_and_watched(
    node: JobNode, capsys: pytest.CaptureFixture[str]
) -> None:
    node.play("0")
    jobs = node.jobs()
    first = jobs.submit("pi", [])
    told: list[list[str]] = []
    order = [("pi", []), ("train", ["jobs.train.epochs=3"])]
    assert attached_job.run_in_order(jobs, order, [], [first], lambda ids: told.append([*ids])) == ExitCode.DONE
    assert [[record.id for record in jobs.records()]] == told
    assert told[0][0] == first
    assert f"job 1 of 2: {first}" in capsys.readouterr().out
