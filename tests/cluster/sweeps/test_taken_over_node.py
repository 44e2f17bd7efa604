"""Root of one worker's node is the attacker: all that he can send of a sweep's run."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.programs.frames import Channel, FrameType, greeting, key_of_runner
from cluster.programs.lead import Lead
from cluster.sweeps import executors
from cluster.sweeps.executors import Places, RemoteExecutor
from tests.tables import table

TRAINING = "20260101T000000Z-train"
TOKEN = "secret"
HOSTS = dict.fromkeys(("worker:0", "worker:1"), "127.0.0.1")


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
