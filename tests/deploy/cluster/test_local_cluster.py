"""A real cluster on this machine: the role processes, their supervisor, and the commands in front of them."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from math import pi
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster.inventory import Inventory, load
from cluster.inventory.templates import local_inventory
from cluster.server.accounts import ROLES_ACCOUNT
from cluster.server.probe import answers
from deploy.cluster.role_status import ClusterStatus
from deploy.common.file_lock import held_by
from deploy.common.project import ROOT
from deploy.common.state_folder import StateFolder
from deploy.supervisor.control import ControlClient
from tests.deploy.playing import PATIENCE_SECONDS, eventually, gone

FAB = Path(sys.executable).with_name("fab")


class LocalCluster:
    """An inventory in a folder of its own, and `fab` beside it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "inventory.yaml").write_text(local_inventory(workers=1))
        self.inventory = load(folder / "inventory.yaml")
        self.state = StateFolder.beside(self.inventory.path, self.inventory.cluster)
        self.pids: set[int] = set()

    def fab(self, line: str, *settings: str) -> subprocess.CompletedProcess[str]:
        overrides = [word for setting in settings for word in ("--set", setting)]
        return self.run(*line.split(), *overrides, "--inventory", str(self.inventory.path))

    @contextlib.contextmanager
    def begun(self, line: str) -> Iterator[subprocess.Popen[str]]:
        """`fab LINE`, while it runs."""
        words = [str(FAB), "-r", str(ROOT), *line.split(), "--inventory", str(self.inventory.path)]
        pipe = subprocess.PIPE
        with subprocess.Popen(words, cwd=self._folder, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(FAB), "-r", str(ROOT), *words],
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )

    def uids(self) -> set[str]:
        """Those of all role processes, real, effective, saved and of the file system."""
        texts = [Path(f"/proc/{role.pid}/status").read_text() for role in self.status().roles]
        return {uid for text in texts for uid in text.partition("Uid:")[2].splitlines()[0].split()}

    def status(self) -> ClusterStatus:
        status = ControlClient(self.state.control_socket).status()
        self.pids.update(role.pid for role in status.roles if role.pid)
        return status


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path)
    yield made
    made.fab("deploy stop")
    assert held_by(made.state.lock) is None
    assert all(gone(pid) for pid in made.pids)


def as_json(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def names(process: psutil.Process, inventory: Inventory) -> bool:
    """Whether the process was started for this inventory."""
    return str(inventory.path.resolve()) in (process.info["cmdline"] or [])


def test_a_cluster_from_start_to_stop(cluster: LocalCluster) -> None:
    started = cluster.fab("deploy start --no-jobs")
    assert started.returncode == 0, started.stdout + started.stderr
    assert "running: 1 ps, 1 workers" in started.stdout
    status = cluster.fab("deploy status --json")
    assert status.returncode == 0
    assert as_json(status)["state"] == "running"
    for role in cluster.status().roles:
        host, port = role.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS):
            pass  # ready means that it answers
    assert cluster.uids() == {str(ROLES_ACCOUNT if os.geteuid() == 0 else os.getuid())}

    again = cluster.fab("deploy start")
    assert again.returncode == 0
    assert "already running, jobs not repeated" in again.stdout
    assert [role.restarts for role in cluster.status().roles] == [0, 0]
    without_jobs = cluster.fab("deploy start --no-jobs").stdout.splitlines()
    assert without_jobs[1:] == ["already running: 1 ps, 1 workers", "jobs not run: --no-jobs"]

    namesake = cluster.inventory.path.with_name("namesake.yaml")
    namesake.write_text(cluster.inventory.path.read_text())
    seen = cluster.run("deploy", "status", "--inventory", "namesake.yaml")
    assert seen.returncode == 0
    assert "was started from inventory.yaml, not from namesake.yaml" in seen.stdout.splitlines()[-1]

    before = cluster.status().roles
    restarted = cluster.fab("deploy restart --role worker:0")
    assert restarted.returncode == 0, restarted.stderr
    after = cluster.status().roles
    assert after[0].pid == before[0].pid
    assert after[1].pid != before[1].pid
    assert "0" not in cluster.uids()

    shown = cluster.fab("deploy logs --role worker --lines 3").stdout
    assert " worker:0 | ready after" in shown
    assert "ps:0" not in shown

    other = cluster.fab("deploy start --set ports.ps=2999 --set nodes.localhost.roles=[ps,worker,coordinator]")
    assert other.returncode == 2
    assert "runs with other roles" in other.stderr

    stopped = cluster.run("deploy", "stop", "--inventory", "namesake.yaml")
    assert stopped.returncode == 0
    assert stopped.stdout.splitlines()[-1].startswith("stopped; the cluster was started from inventory.yaml, not")
    again = cluster.fab("deploy stop")
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, "nothing was running")
    assert cluster.fab("deploy status").returncode == 3


def test_a_role_that_cannot_start_gives_its_one_line(cluster: LocalCluster) -> None:
    taken = cluster.inventory.task("ps", 0).port
    with socket.create_server(("127.0.0.1", taken)):
        check = cluster.fab("deploy check")
        started = cluster.fab("deploy start")
    assert check.returncode == 1
    assert f"port {taken} is taken by process {os.getpid()}" in check.stdout
    assert started.returncode == 3
    line, left = started.stderr.strip().splitlines()
    assert line.startswith(f"ps:0 failed: port {taken} ")
    assert line.removeprefix("ps:0 failed: ") not in started.stdout
    assert left == f"1 of 2 roles runs; `fab deploy stop --inventory {cluster.inventory.path}` ends it"
    assert "exit code 20 (PORT_TAKEN)" in line
    assert "job 1" not in started.stdout
    mended = cluster.fab("deploy start --no-jobs")
    assert mended.returncode == 0, mended.stderr


@pytest.mark.long
@pytest.mark.timeout(300)
def test_from_a_fresh_inventory_to_a_result_and_back_to_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    made = cluster.run("init", "--local", "--workers", "1", "--out", "local.yaml")
    assert made.returncode == 0, made.stderr
    (tmp_path / "local.yaml").replace(cluster.inventory.path)  # `local` is the name of the cluster in both
    jobs = 'jobs={"pi": {"samples": 1000000, "chunk_samples": 100000}}'
    first = cluster.fab("deploy start", jobs)
    assert first.returncode == 0, first.stdout + first.stderr
    line = first.stdout.splitlines()[-1]
    assert line.startswith("result: runs/")
    result = json.loads((tmp_path / line.removeprefix("result: ")).read_text())
    assert (result["job"], result["status"], result["samples"]) == ("pi", "done", 1_000_000)
    assert abs(result["estimate"] - pi) < 10 * result["standard_error"]

    second = cluster.fab("deploy start", jobs)
    assert second.returncode == 0
    assert second.stdout.splitlines()[-1].startswith("already running, jobs not repeated")
    assert len(list((tmp_path / "runs").glob("*-pi"))) == 1

    cluster.status()
    assert cluster.fab("deploy stop").returncode == 0
    assert held_by(cluster.state.lock) is None
    assert all(gone(pid) for pid in cluster.pids)
    assert sorted(path.name for path in cluster.state.path.iterdir()) == [
        *("deployments", "job.lock", "logs", "nodes.json", "supervisor.lock", "token")
    ]
    left = [process.info for process in psutil.process_iter(["pid", "cmdline"]) if names(process, cluster.inventory)]
    assert left == []


def test_what_the_watchdog_of_a_job_asks_for_brings_the_worker_back(cluster: LocalCluster) -> None:
    assert cluster.fab("deploy start --no-jobs").returncode == 0
    before = cluster.status().roles[1]
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rwb") as stream:
        connection.settimeout(PATIENCE_SECONDS)
        connection.connect(str(cluster.state.control_socket))  # a job finds it in $PSCLUSTER_SUPERVISOR
        stream.write(b'{"verb": "kill", "task": "worker:0"}\n')
        stream.flush()
        reply = json.loads(stream.readline())
    assert reply == {"ok": True, "task": "worker:0", "pid": before.pid}
    assert before.pid is not None
    assert gone(before.pid)
    eventually(lambda: cluster.status().running, "the return of the worker")
    after = cluster.status().roles[1]
    assert (after.restarts, after.pid != before.pid) == (1, True)
    task = cluster.inventory.task("worker", 0)
    assert answers(task.host, task.port, PATIENCE_SECONDS)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_killed_coordinator_comes_back_on_its_ports_and_leaves_nobody_behind(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    assert cluster.fab("deploy start --no-jobs").returncode == 0
    before = cluster.status().roles
    task = cluster.inventory.task("coordinator", 0)
    with cluster.begun("job pi --samples 1e8 --set jobs.pi.chunk_samples=1000000") as command:
        eventually(lambda: answers(task.host, task.port, 1.0), "the coordinator's server")
        (coordinator,) = psutil.Process(command.pid).children()
        eventually(lambda: bool(coordinator.children()), "its watchdog")
        (watchdog,) = coordinator.children()
        coordinator.kill()
        shown, words = command.communicate(timeout=2 * PATIENCE_SECONDS)
    assert command.returncode == 0, words
    assert "pi: ended with signal 9 (SIGKILL)" in words
    assert "pi: started again" in words
    result = json.loads((tmp_path / shown.splitlines()[-1].removeprefix("result: ")).read_text())
    assert (result["status"], result["samples"]) == ("done", 10**8)
    assert gone(watchdog.pid)
    assert not {role.pid for role in before} & {role.pid for role in cluster.status().roles}


@pytest.mark.long
def test_after_the_supervisor_is_killed_start_works_again(cluster: LocalCluster) -> None:
    assert cluster.fab("deploy start --no-jobs").returncode == 0
    first = cluster.status()
    assert first.supervisor_pid is not None
    os.kill(first.supervisor_pid, signal.SIGKILL)
    assert cluster.fab("deploy start --no-jobs").returncode == 0
    second = cluster.status()
    assert second.supervisor_pid != first.supervisor_pid
    eventually(lambda: all(gone(role.pid) for role in first.roles if role.pid), "the death of the first roles")


@pytest.mark.long
def test_a_supervisor_that_does_not_answer_is_ended_by_force(cluster: LocalCluster) -> None:
    assert cluster.fab("deploy start --no-jobs").returncode == 0
    supervisor = cluster.status().supervisor_pid
    assert supervisor is not None
    os.kill(supervisor, signal.SIGSTOP)
    stopped = cluster.fab("deploy stop")
    assert stopped.returncode == 0
    assert stopped.stdout.splitlines()[-1] == "stopped; had to be killed: supervisor"
    eventually(lambda: all(gone(pid) for pid in cluster.pids), "the death of the roles")
    with contextlib.suppress(FileNotFoundError):
        assert [path.name for path in cluster.state.path.iterdir() if path.name.endswith((".sock", ".pid"))] == []
