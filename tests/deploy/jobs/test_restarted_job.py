import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from core.ground.errors import ExitCode
from core.ground.locks import held_by
from core.inventory import load
from deploy.cluster.fleet import Fleet
from deploy.common.project import environment_for_any_folder
from deploy.common.state_folder import StateFolder
from deploy.supervisor.services import Supervised
from tests.deploy.playing import PATIENCE_SECONDS, PlayedCluster, eventually

INVENTORY = """schema: 1
cluster: played
connection: local
nodes: [{name: here, address: 127.0.0.1, roles: [ps, worker, coordinator]}]
"""
HERE = Path(__file__).parents[1]


@pytest.fixture
def roles(tmp_path: Path) -> Iterator[PlayedCluster]:
    """The inventory's cluster, its roles played and ready."""
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(INVENTORY)
    cluster = PlayedCluster(tmp_path, StateFolder.of(inventory, "played").path)
    cluster.script(ps_0="ready", worker_0="ready")
    cluster.start("ps-0", "worker-0")
    cluster.until_running()
    yield cluster
    cluster.end()


@contextmanager
def job(
    root: Path, endings: str, name: str = "train", delay_seconds: float = 0.01
) -> Iterator[subprocess.Popen[str]]:
    driven = [str(root / "inventory.yaml"), name, str(delay_seconds)]
    player = [str(HERE / "play_attempts.py"), str(root / "journal"), endings]
    with subprocess.Popen(
        [sys.executable, str(HERE / "drive_job.py"), *driven, *player],
        env=environment_for_any_folder(),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def done(root: Path, endings: str, name: str = "train") -> tuple[int, list[str]]:
    """The command's exit code and its lines on stderr."""
    with job(root, endings, name) as process:
        _, words = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, words.splitlines()


def attempts(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "journal").read_text().splitlines()]


def test_a_training_is_continued_in_its_folder_with_fresh_roles(roles: PlayedCluster) -> None:
    code, (decision, again) = done(roles.root, "24,0")
    assert code == 0
    first, second = attempts(roles.root)
    folder = f"{roles.root}/runs/one"
    assert (first["resume"], second["resume"]) == ("asked", folder)
    assert first["state"] == second["state"] == "running"
    assert not set(first["pids"]) & set(second["pids"])
    assert decision.startswith("train: ended with exit code 24 (SERVER_LOST) after ")
    assert decision.endswith("; restart 1 of 5 within 600 s, in 0.0 s")
    assert again == f"train: started again, resuming {folder}"
    assert not roles.folder.run_file.exists()


@pytest.mark.parametrize(("name", "endings"), [("train", "killed-early,0"), ("pi", "killed,0")])
def test_what_cannot_be_continued_is_run_again_from_the_beginning(
    roles: PlayedCluster, name: str, endings: str
) -> None:
    """A training that had no folder yet, and another job."""
    roles.folder.run_file.write_text("/of/a/job/before\n")
    code, words = done(roles.root, endings, name)
    assert code == 0
    assert [attempt["resume"] for attempt in attempts(roles.root)] == ["asked", "asked"]
    assert words[-1] == f"{name}: started again"


def test_a_job_that_was_done_does_not_run_again_after_a_loss(roles: PlayedCluster) -> None:
    """The first coordinator is the one that was started ahead, with both jobs."""
    code, words = done(roles.root, "killed,0", "pi,train")
    assert code == 0
    folder = f"{roles.root}/runs/one"
    assert [(attempt["jobs"], attempt["resume"]) for attempt in attempts(roles.root)] == [
        (["pi", "train"], "asked"),
        (["train"], folder),
    ]
    assert words[0].startswith("train: ended with signal 9")
    assert words[-1] == f"train: started again, resuming {folder}"


def test_a_job_that_ends_with_0_and_without_a_result_is_not_done(roles: PlayedCluster) -> None:
    code, words = done(roles.root, "empty")
    assert code == 1
    assert len(attempts(roles.root)) == 1
    assert "train: the process ended with 0 before it had a result" in words[-1]


def test_an_interrupt_ends_the_wait_for_a_restart(roles: PlayedCluster) -> None:
    inventory = load(roles.root / "inventory.yaml")
    for attempt, interrupt in enumerate((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, None), 1):
        with job(roles.root, "24,24,24,24,0", delay_seconds=900.0) as process:
            assert process.stderr is not None
            assert "restart 1 of 5 within 600 s, in 900.0 s" in process.stderr.readline()
            assert held_by(roles.folder.job_lock) == process.pid
            if interrupt is None:
                Supervised(inventory, ()).stop(Fleet.here(inventory), ["here"])
            else:
                process.send_signal(interrupt)
            _, words = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == ExitCode.CANCELLED
        assert len(attempts(roles.root)) == attempt
        assert "train: interrupted before it was started again" in words
        assert held_by(roles.folder.job_lock) is None


def test_one_job_runs_at_a_time_and_a_stop_interrupts_it(roles: PlayedCluster) -> None:
    inventory = load(roles.root / "inventory.yaml")
    with job(roles.root, "waits") as running:
        eventually((roles.root / "journal.waits").exists, "the start of the job")
        code, words = done(roles.root, "0")
        assert code == ExitCode.FAILED
        assert f"a job is running on cluster played already (fab, pid {running.pid})" in words[-1]
        Supervised(inventory, ()).stop(Fleet.here(inventory), ["here"])
        assert running.wait(PATIENCE_SECONDS) == ExitCode.CANCELLED
    assert held_by(roles.folder.job_lock) is None
    assert len(attempts(roles.root)) == 1


def test_a_cluster_that_does_not_come_back_ends_the_job(roles: PlayedCluster) -> None:
    roles.script(ps_0="exit 2")
    code, words = done(roles.root, "killed,0")
    assert code == ExitCode.FAILED
    assert words[-1].startswith(
        "the job cannot be started again, its roles do not restart: ps:0 failed: this role"
    )
    assert words[-2].endswith(" resumes it")
    assert len(attempts(roles.root)) == 1


def test_a_cluster_that_was_stopped_meanwhile_ends_the_job(roles: PlayedCluster) -> None:
    roles.end()
    code, words = done(roles.root, "24,0")
    assert code == ExitCode.FAILED
    assert words[-1].startswith("cluster played is not running: `fab deploy start --inventory ")
