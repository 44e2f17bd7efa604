"""A real cluster on this machine: its roles, their supervisor, and the commands before them."""

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

from core.control.client import key_of
from core.control.own_state import read_token
from core.ground.accounts import ROLES_ACCOUNT
from core.ground.locks import held_by
from core.inventory import load
from core.inventory.templates import local_inventory
from core.server.sockets import answers
from deploy.cluster.services import ClusterStatus, RoleStatus
from deploy.common.project import ROOT
from deploy.common.state_folder import StateFolder
from deploy.supervisor.control import ControlClient
from tests.deploy.playing import PATIENCE_SECONDS, eventually, gone
from tests.deploy.release.wheels import names
from tests.deploy.typed import Fab, Outcome
from tests.hang import HANG_SECONDS


class LocalCluster:
    """An inventory in a folder of its own, and `fab` beside it."""

    def __init__(self, folder: Path, fab: Fab) -> None:
        self._folder = folder
        self._fab = fab
        (folder / "inventory.yaml").write_text(local_inventory(workers=1))
        self.inventory = load(folder / "inventory.yaml")
        self.state = StateFolder.of(self.inventory.path, self.inventory.cluster)
        self.pids: set[int] = set()

    def fab(self, line: str, inventory: str = "inventory.yaml") -> Outcome:
        """`fab LINE` in this process: what it starts would be a child of the test."""
        return self._fab(f"{line} --inventory {inventory}")

    def does(self, line: str, inventory: str = "inventory.yaml") -> list[str]:
        """The lines of a command that succeeds."""
        done = self.fab(line, inventory)
        assert done.code == 0, done.stderr
        return done.stdout.splitlines()

    @contextlib.contextmanager
    def begun(self, line: str) -> Iterator[subprocess.Popen[str]]:
        """`fab LINE` as a process, while it runs."""
        words = [str(Path(sys.executable).with_name("fab")), "-r", str(ROOT), *line.split()]
        words += ["--inventory", str(self.inventory.path)]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            words, cwd=self._folder, stdout=pipe, stderr=pipe, text=True
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, line: str) -> Outcome:
        """`fab LINE` as a process, which leaves its supervisor behind."""
        with self.begun(line) as process:
            shown, words = process.communicate(timeout=HANG_SECONDS)
        return Outcome(process.returncode, shown, words)

    def start(self, flags: str = "--no-jobs") -> str:
        started = self.run(f"deploy start {flags}")
        assert started.code == 0, started.stdout + started.stderr
        return started.stdout

    def result(self, shown: str) -> Any:
        """The result that the last line names."""
        path = shown.splitlines()[-1].removeprefix("result: ")
        return json.loads((self._folder / path).read_text())

    def uids(self) -> set[str]:
        """The accounts of all role processes: real, effective, saved and of the file system."""
        texts = [Path(f"/proc/{role.pid}/status").read_text() for role in self.roles]
        return {uid for text in texts for uid in text.partition("Uid:")[2].splitlines()[0].split()}

    def status(self) -> ClusterStatus:
        status = ControlClient(self.state.control_socket).status()
        self.pids.update(role.pid for role in status.roles if role.pid)
        return status

    @property
    def roles(self) -> tuple[RoleStatus, ...]:
        return self.status().roles


@pytest.fixture
def cluster(tmp_path: Path, fab: Fab) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path, fab)
    yield made
    made.run("deploy stop")
    assert held_by(made.state.lock) is None
    assert all(gone(pid) for pid in made.pids)


def test_a_cluster_from_start_to_stop(cluster: LocalCluster) -> None:
    assert "running: 1 ps, 1 workers" in cluster.start()
    assert json.loads("".join(cluster.does("deploy status --json")))["state"] == "running"
    for role in cluster.roles:
        host, port = role.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS):
            pass  # ready means that it answers
    for role in cluster.roles:  # a graph can read it there
        given = Path(f"/proc/{role.pid}/environ").read_text()
        key = key_of(read_token(cluster.state.path), role.name)
        assert "PSCLUSTER_TOKEN" not in given
        assert f"PSCLUSTER_KEY={key}" in given
    assert cluster.uids() == {str(ROLES_ACCOUNT if os.geteuid() == 0 else os.getuid())}

    assert "already running, jobs not repeated" in cluster.does("deploy start")[-1]
    assert [role.restarts for role in cluster.roles] == [0, 0]
    running = ["already running: 1 ps, 1 workers", "jobs not run: --no-jobs"]
    assert cluster.does("deploy start --no-jobs")[1:] == running

    namesake = cluster.inventory.path.with_name("namesake.yaml")
    namesake.write_text(cluster.inventory.path.read_text())
    assert "nothing was running" in cluster.does("deploy stop", "namesake.yaml")[-1]

    server, worker = cluster.roles
    cluster.does("deploy restart --role worker:0")
    assert cluster.roles[0].pid == server.pid
    assert cluster.roles[1].pid != worker.pid
    assert "0" not in cluster.uids()

    shown = "\n".join(cluster.does("deploy logs --role worker --lines 3"))
    assert " worker:0 | ready after" in shown
    assert "ps:0" not in shown

    roles = "nodes.localhost.roles=[ps,worker,coordinator]"
    other = cluster.fab(f"deploy start --set ports.ps=2999 --set {roles}")
    assert other.code == 2
    assert "runs with other roles" in other.stderr

    assert cluster.does("deploy stop")[-1] == "stopped"


def test_a_role_that_cannot_start_gives_its_one_line(cluster: LocalCluster) -> None:
    taken = cluster.inventory.task("ps", 0).port
    with socket.create_server(("127.0.0.1", taken)):
        check = cluster.fab("deploy check")
        started = cluster.run("deploy start")
    assert check.code == 1
    assert f"port {taken} is taken by process {os.getpid()}" in check.stdout
    assert started.code == 3
    (line,) = started.stderr.strip().splitlines()
    assert line.startswith(f"ps:0 failed: port {taken} ")
    assert line.removeprefix("ps:0 failed: ") not in started.stdout
    assert "exit code 20 (PORT_TAKEN)" in line
    assert "job 1" not in started.stdout
    cluster.start()  # mended


@pytest.mark.long
def test_from_a_fresh_inventory_to_a_result_and_back_to_nothing(
    cluster: LocalCluster, fab: Fab, tmp_path: Path
) -> None:
    assert fab("init --local --workers 1 --out local.yaml").code == 0
    # `local` is the name of the cluster in both.
    (tmp_path / "local.yaml").replace(cluster.inventory.path)
    jobs = '--set jobs={"pi":{"samples":1000000,"chunk_samples":100000}}'
    result = cluster.result(cluster.start(jobs))
    assert (result["job"], result["status"], result["samples"]) == ("pi", "done", 1_000_000)
    assert abs(result["estimate"] - pi) < 10 * result["standard_error"]

    cluster.status()
    # As a person does: the supervisor gives its lock away a moment before it ends.
    assert cluster.run("deploy stop").code == 0
    assert held_by(cluster.state.lock) is None
    assert all(gone(pid) for pid in cluster.pids)
    kept = ["deployments", "job.lock", "logs", "nodes.json", "supervisor.lock", "token"]
    assert names(cluster.state.path) == kept
    ours = str(cluster.inventory.path.resolve())
    processes = psutil.process_iter(["pid", "cmdline"])
    assert [one.info for one in processes if ours in (one.info["cmdline"] or [])] == []


@pytest.mark.long
def test_a_killed_coordinator_comes_back_on_its_ports_and_leaves_nobody_behind(
    cluster: LocalCluster,
) -> None:
    cluster.start()
    before = {role.pid for role in cluster.roles}
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
    result = cluster.result(shown)
    assert (result["status"], result["samples"]) == ("done", 10**8)
    assert gone(watchdog.pid)
    assert not before & {role.pid for role in cluster.roles}


@pytest.mark.long
def test_a_supervisor_that_does_not_answer_is_ended_by_force(cluster: LocalCluster) -> None:
    cluster.start()
    pid = cluster.status().supervisor_pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    assert cluster.does("deploy stop")[-1] == "stopped; had to be killed: supervisor"
    eventually(lambda: all(gone(pid) for pid in cluster.pids), "the death of the roles")
    with contextlib.suppress(FileNotFoundError):
        left = names(cluster.state.path)
        assert [name for name in left if name.endswith((".sock", ".pid"))] == []
