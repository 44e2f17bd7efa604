"""Root of one worker's node is the attacker: all that he can send of a sweep's run."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.programs.frames import Channel, FrameType, greeting, key_of_runner, send_files
from cluster.programs.lead import Lead
from cluster.sweeps import executors
from cluster.sweeps.executors import Places, RemoteExecutor
from core.inventory.templates import local_inventory
from deploy.common.project import ROOT
from tests.cluster.apps.planted import plant
from tests.hang import HANG_SECONDS
from tests.tables import table

TRAINING = "20260101T000000Z-train"
TOKEN = "secret"
HOSTS = dict.fromkeys(("worker:0", "worker:1"), "127.0.0.1")
RUNNER = """
import sys
from pathlib import Path
from cluster.programs.frames import key_of_runner
from cluster.programs.runner import RunnerTask, run
port, folder, *ports = sys.argv[1:]
own = key_of_runner("secret", "worker:1")
run(RunnerTask(("127.0.0.1", int(port)), own, "worker:1", [*map(int, ports)], Path("x"),
               Path(folder) / "files", module="cluster.sweeps.member"), 30.0)
"""


def everything(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


class Driver:
    """The driver of a sweep without an app: its other runs, and the operator's own files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = folder / "runs/0001"
        self.run.mkdir(parents=True)
        for path in ("runs/0002/20260101T000000Z-train/result.json", "sweep.json", "own/app.py"):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text("mine")
        self.lead = Lead("127.0.0.1", 0, TOKEN, HOSTS)

    def hostile(self) -> socket.socket:
        """The attacker has the key of his own task."""
        theirs = socket.create_connection(("127.0.0.1", self.lead.port))
        told = greeting(theirs, key_of_runner(TOKEN, "worker:0"), "worker:0")
        Channel(theirs).send(FrameType.HELLO, {**told, "port": 5000, "second_port": 5001})
        return theirs

    def take(self) -> RemoteExecutor:
        executor = RemoteExecutor("worker:0", self.lead)
        self.lead.gather(["worker:0"], lambda: False, 20)
        executor.begin("0001", [], self.run)
        return executor

    def hear(self, executor: RemoteExecutor) -> None:
        process = self.lead.processes[executor.name]
        while process.poll() is None:
            process.read_output()
        process.leave(last=False)
        process.close()
        executor.close()
        self.lead.processes.pop(executor.name)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    made = Driver(tmp_path / "driver")
    yield made
    made.lead.close(True)


@pytest.mark.parametrize(("path", "size"), table("cluster/sweeps/rows", "hostile files"))
def test_nothing_but_the_files_of_a_training_comes(driver: Driver, path: str, size: int) -> None:
    path = path.format(training=TRAINING)
    before = everything(driver.folder)
    with driver.hostile() as theirs:
        executor = driver.take()
        Channel(theirs).send(FrameType.FILE, {"path": path})
        Channel(theirs).send(FrameType.BYTES, b"x" * size)
        theirs.shutdown(socket.SHUT_WR)
        driver.hear(executor)
    after = everything(driver.folder)
    after.pop(f"runs/0001/{TRAINING}/sequence", None)  # which begins, and is cut
    assert after == before
    assert not Path("/etc/pscluster-planted").exists()


def test_a_node_that_restarts_between_two_runs_takes_its_place_again(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "JOIN_EVERY_SECONDS", 0.0)
    with driver.hostile() as before:
        executor = driver.take()
        Channel(before).send(FrameType.ENDED, {"return_code": 0})
        first = driver.lead.processes[executor.name]
        while first.poll() is None:
            first.read_output()
    with driver.hostile():
        Places([executor], driver.lead).rejoin()
        assert (first.is_lost, first.poll(), executor.available) == (True, 0, True)
        assert driver.lead.processes[executor.name] is not first


def test_what_one_node_sent_runs_on_no_other(driver: Driver, tmp_path: Path) -> None:
    """The driver brings the lost run to the next node, a real runner that resumes it."""
    mark = tmp_path / "mark"
    plant(tmp_path / "planted" / TRAINING, mark, record=True, finished=False)
    for nested in ("", "model/", "checkpoints/"):
        folder = tmp_path / "planted" / TRAINING / nested / TRAINING
        plant(folder, mark, record=True, finished=False)
    with driver.hostile() as theirs:
        executor = driver.take()
        send_files(Channel(theirs), tmp_path / "planted")
        theirs.shutdown(socket.SHUT_WR)
        driver.hear(executor)
    assert [path.name for path in driver.run.rglob("*.py")] == []
    assert (driver.run / TRAINING / "coordinator.log").exists()
    node = tmp_path / "node-b"
    node.mkdir()
    (node / "inventory.yaml").write_text(local_inventory(1, 1))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    words = [sys.executable, "-c", RUNNER, str(driver.lead.port), str(node)]
    ports = [str(port) for port in range(5100, 5110)]
    with subprocess.Popen([*words, *ports], env=environment) as runner:
        other = RemoteExecutor("worker:1", driver.lead)
        driver.lead.gather(["worker:1"], lambda: False, 60)
        there = ["--inventory", str(node / "inventory.yaml"), "--set", "jobs.train.mode=single"]
        there += ["--set", f"jobs.train.data.source={tmp_path / 'none'}", "--quiet"]
        process = other.begin("0001", there, driver.run)
        said = b""
        while process.poll() is None:
            said += process.read_output() or b""
        code = process.poll()
        driver.lead.close(True)
        runner.wait(HANG_SECONDS)
    assert code == 2, said.decode(errors="replace")
    assert (node / "files" / TRAINING / "coordinator.log").exists()
    assert not mark.exists()
