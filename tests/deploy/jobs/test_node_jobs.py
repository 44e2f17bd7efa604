"""Jobs from the operator's side, on a node that is this machine."""

import os
import re
import signal
import threading
from pathlib import Path

import pytest

from core.ground.errors import ClusterError, ExitCode
from core.inventory import load
from deploy.cluster.connector import NodeUnreachableError
from deploy.jobs import attached_job
from deploy.jobs.records import JobState
from deploy.jobs.request import request_of
from tests.deploy.job_node import JobNode
from tests.deploy.playing import eventually


def interrupt(_line: str) -> None:
    """A Ctrl-C at the first line that is shown."""
    raise KeyboardInterrupt


def test_a_job_runs_there_and_its_result_comes_here(
    node: JobNode, capsys: pytest.CaptureFixture[str]
) -> None:
    node.play("0")
    jobs = node.jobs("jobs.train.epochs=3")
    assert attached_job.run_attached(jobs, "train", ["--quiet"]) == ExitCode.DONE
    out, err = capsys.readouterr()
    run = node.folder / "here/runs/20991121T223000Z-train"
    assert out == f"result: {run}/result.json\n"
    assert (run / "result.json").exists()
    assert (run / "model/model.json").exists()
    assert "<title>" in (run / "report.html").read_text()  # of ours: none comes from a node
    assert not (run / "checkpoints").exists()
    begins = r"job \d{8}T\d{4}-train runs on rpi11; Ctrl-C leaves it running\n"
    assert re.fullmatch(f"{begins}epoch 0\nepoch 1\nepoch 2\ntrain: done\n", err)
    (record,) = node.jobs().records()
    inventory = node.root.job(record.id).inventory
    runs = f'runs="{node.folder}/mount/runs"'
    assert " ".join(node.asked()) == (
        f"train --inventory {inventory} --set jobs.train.epochs=3 --set {runs} --quiet"
    )
    assert inventory.read_text() == node.inventory.path.read_text()


def test_for_programs_the_result_is_printed(
    node: JobNode, capsys: pytest.CaptureFixture[str]
) -> None:
    node.play("0")
    assert attached_job.run_attached(node.jobs(), "pi", ["--json"]) == 0
    out, err = capsys.readouterr()
    assert '"status": "done", "result_path": ' in out
    assert err.splitlines()[-1].startswith("result: ")
    assert "--json" not in node.asked()
    (record,) = node.jobs().records()
    Path(str(record.run_folder), "result.json").write_text("[1]")
    attached_job.finish(node.jobs(), record, for_programs=True)
    assert capsys.readouterr().out.startswith('{"result_path": ')


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
    node.play("waits")
    jobs = node.jobs()
    with monkeypatch.context() as patched:
        patched.setattr(attached_job, "_show", interrupt)
        assert attached_job.run_attached(jobs, "train", []) == ExitCode.CANCELLED
    running = jobs.choose(None)
    assert (running.state, running.pid) == (JobState.RUNNING, node.pid(running.id))
    which = f"--job {running.id} --inventory {node.inventory.path}`"
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"job {running.id} continues; `fab job attach {which} watches it again, `fab job cancel"
        f" {which} ends it with its result so far"
    )
    node.until_it_waits()
    cancelled = jobs.cancel(running.id)
    assert (cancelled.state, cancelled.exit_code) == (JobState.CANCELLED, ExitCode.CANCELLED)
    assert attached_job.finish(jobs, cancelled) == ExitCode.CANCELLED


def test_nothing_is_lost_or_repeated_when_the_connection_breaks(
    node: JobNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.jobs.node_jobs._RECONNECT_DELAYS_SECONDS", (0.0, 0.0))
    jobs, name = node.waiting()
    node.shell.breaks = 3  # one line each
    lines: list[str] = []
    troubles: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        if len(lines) == 3:
            canceller.start()

    canceller = threading.Thread(target=jobs.cancel, args=[name])
    record = jobs.attach(name, on_line, troubles.append)
    canceller.join()
    assert record.state is JobState.CANCELLED
    assert lines[:3] == ["epoch 0", "epoch 1", "epoch 2"]
    assert any(line.startswith("result: ") for line in lines)
    assert len(lines) == len(set(lines))
    assert troubles == ["rpi11: the connection broke"] * 3


def test_a_node_that_stays_away_is_told_and_the_job_goes_on(
    node: JobNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.jobs.node_jobs._RECONNECT_DELAYS_SECONDS", ())
    jobs, name = node.waiting()
    node.shell.breaks = 1
    hint = rf"(?s)broke\njob {name} may still run; `fab job attach --job {name}"
    with pytest.raises(NodeUnreachableError, match=hint):
        attached_job.watch(jobs, name)
    jobs.cancel(name)


def test_a_job_whose_process_was_killed_says_how_to_go_on(
    node: JobNode, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs, name = node.waiting()
    os.kill(node.pid(name), signal.SIGKILL)
    assert attached_job.watch(jobs, name) == ExitCode.FAILED
    assert jobs.choose(name).state is JobState.INTERRUPTED
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(
        f"job {name} was interrupted: its process is gone without a result; `fab job train --resume"
        f" --run runs/20991121T223000Z-train --inventory {node.inventory.path}"
    )


def test_a_node_without_our_code_is_one_line(node: JobNode) -> None:
    (node.folder / "release/deploy").unlink()
    with pytest.raises(
        ClusterError, match=r"rpi11: its jobs cannot be listed: .*No module named.*fab deploy start"
    ):
        node.jobs().records()


def test_runs_are_those_of_the_node(node: JobNode) -> None:
    flags = ["--json", "--resume", "runs/one/", "--chaos", "late:0.1"]
    request = request_of(node.inventory, "train", (), flags, "/mnt/runs")
    assert request.flags == ("--resume", "/mnt/runs/one", "--chaos", "late:0.1")
    bare = request_of(node.inventory, "train", (), ["--resume", "--chaos", "x"], "/r")
    assert bare.flags[:2] == ("--resume", "--chaos")
    assert request.roles == {}  # mode: single
    roles = {"ps:0": "127.0.0.1:9200", "worker:0": "127.0.0.1:9201"}
    assert request_of(node.inventory, "pi", (), (), "/r").roles == roles
    judged = load(node.inventory.path, ["jobs.evaluate.run=runs/one"])
    assert (
        request_of(judged, "evaluate", (), (), "/r").overrides[-1] == 'jobs.evaluate.run="/r/one"'
    )


ORDER: list[tuple[str, list[str]]] = [("pi", []), ("train", ["jobs.train.epochs=3"])]


def test_jobs_in_order_end_with_the_first_that_fails(
    node: JobNode, capsys: pytest.CaptureFixture[str]
) -> None:
    node.play("1")
    jobs = node.jobs()
    assert attached_job.run_in_order(jobs, ORDER, []) == ExitCode.FAILED
    eventually(
        lambda: {record.state for record in jobs.records()} == {JobState.FAILED}, "the end of both"
    )
    assert len(capsys.readouterr().out.splitlines()) == 2  # which job, and its result
