"""The watch of a job, with a job that does nothing: its page, its history, its end. Real HTTP, no cluster."""

import json
import logging
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from cluster.engine.membership import Membership, Phase
from cluster.errors import ClusterError, UsageError
from cluster.inventory import Inventory, load
from cluster.inventory.templates import local_inventory
from cluster.jobs.cancel import Cancel
from cluster.jobs.evaluate import Found, figures_computed
from cluster.jobs.job_metrics import CoordinatorMetrics
from cluster.jobs.lifecycle import Job, conduct
from cluster.jobs.run_folder import RunFolder
from cluster.jobs.status_watch import StatusWatch, way_in
from cluster.status.events import (
    BatchesCut,
    CheckpointWritten,
    EpochEnded,
    Planned,
    Restored,
    StageBegan,
    Stepped,
    Updated,
)
from cluster.status.history import NAME, read_run
from cluster.status.parts import Figures
from cluster.status.stream import Stream

PARTS = {"pull": 0.1, "compute": 0.2, "push": 0.1, "wait": 0.0}


class Played(Job):
    """A job that does what it is made with."""

    name = "train"

    def __init__(
        self, run: Callable[[RunFolder], None] = lambda _: None, prepare: Callable[[], None] = lambda: None
    ) -> None:
        self._run, self._prepare = run, prepare
        self.metrics, self.stream = CoordinatorMetrics(), Stream()

    def prepare(self) -> None:
        self._prepare()

    def run(self, folder: RunFolder) -> None:
        self._run(folder)

    def complete(self) -> bool:
        return True

    def result(self) -> dict[str, Any]:
        return {"model": {"name": "thesis", "parameters": 1234}}


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    path = tmp_path / "inventory.yaml"
    path.write_text(local_inventory(2))
    return load(path)


def page(inventory: Inventory) -> str:
    return f"http://127.0.0.1:{inventory.task('coordinator', 0).page_port}"


def status(inventory: Inventory) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{page(inventory)}/api/status").json()
    return found


def train(watch: StatusWatch) -> Callable[[RunFolder], None]:
    """One epoch of four updates."""

    def run(_: RunFolder) -> None:
        membership = Membership([0, 1])
        for worker in membership.workers.values():
            worker.phase = Phase.IDLE
        assert watch._job is not None
        watch._job.metrics.membership = membership
        watch.look()
        emit = watch._job.stream.emit
        emit(BatchesCut(4))
        emit(StageBegan("train", 4, "updates"))
        emit(Planned(1, 0, 0.01))
        for number in range(4):
            emit(Stepped(number % 2, 20, float(number), 0.5, PARTS))
            emit(Updated(number, number + 1, 4, 0.5, 0.01, 100.0))
        confusion = np.array([[3, 1], [0, 4]])
        found = Figures(accuracy=7 / 8, f1_macro=0.87, loss=0.5)
        emit(figures_computed("validation", Found(found, confusion, 8), ["sit", "walk"], 1))
        emit(EpochEnded("train", 1, 0.5, 0.9, 0.01, 100.0, 0.0, found))
        emit(CheckpointWritten(0.1, 1_000_000, 4))
        membership.workers[1].phase, membership.workers[1].departures = Phase.ABSENT, 1
        watch.look()
        logging.getLogger("anything").warning("the %s is hot", "node")

    return run


def test_a_run_is_shown_while_it_goes_on_and_kept_when_it_has_ended(inventory: Inventory, tmp_path: Path) -> None:
    said: list[str] = []
    watch = StatusWatch(inventory, "train", said.append)
    pictures: dict[str, dict[str, Any]] = {}

    def prepare() -> None:
        pictures["preparing"] = status(inventory)

    def run(folder: RunFolder) -> None:
        train(watch)(folder)
        end = time.monotonic() + 60.0
        while (found := status(inventory))["run"] == "":  # an answer is given again for half a second
            assert time.monotonic() < end
            time.sleep(0.05)
        pictures["running"] = found
        assert httpx.get(page(inventory)).status_code == 200

    path, _ = conduct(Played(run, prepare), tmp_path / "runs", Cancel(), watch=watch)
    assert said == [f"live page: {page(inventory)}/"]
    assert (pictures["preparing"]["state"], pictures["preparing"]["run"]) == ("preparing", "")
    running = pictures["running"]
    assert (running["state"], running["run"]) == ("running", path.parent.name)
    assert running["progress"] == {"stage": "train", "done": 4, "total": 4, "unit": "updates"}
    assert running["train"]["parameters"] == 1234
    assert running["train"]["epochs"][0]["validation_accuracy"] == 0.875
    assert running["confusion"]["rows"] == [[3, 1], [0, 4]]
    roles = {role["task"]: role for node in running["nodes"] for role in node["roles"]}
    assert {task: role["state"] for task, role in roles.items()} == {
        "ps:0": "unknown", "worker:0": "idle", "worker:1": "absent", "coordinator:0": "up"
    }  # fmt: skip
    assert roles["worker:0"]["windows"] == 40
    texts = [event["text"] for event in running["events"]]
    assert "worker:1 left the cluster" in texts
    assert "the node is hot" in texts
    view = read_run(path.parent)
    assert (view.state, view.run) == ("done", path.parent.name)
    assert view.train is not None
    assert (view.train.checkpoints, len(view.train.epochs)) == (1, 1)
    with pytest.raises(httpx.ConnectError):
        status(inventory)
    assert not {thread.name for thread in threading.enumerate()} & {"page", "status", "history", "roles"}


def test_bad_input_is_shown_and_leaves_no_folder(inventory: Inventory, tmp_path: Path) -> None:
    watch = StatusWatch(inventory, "train", lambda _: None)

    def refuse() -> None:
        raise UsageError("no such file")

    with pytest.raises(UsageError, match="no such file"):
        conduct(Played(prepare=refuse), tmp_path / "runs", Cancel(), watch=watch)
    assert not (tmp_path / "runs").exists()
    assert (watch.status.view().state, watch.status.view().reason) == ("failed", "no such file")


def test_why_it_failed_is_kept(inventory: Inventory, tmp_path: Path) -> None:
    def fail(_: RunFolder) -> None:
        raise ClusterError("ps:0 is gone")

    with pytest.raises(ClusterError):
        conduct(Played(fail), tmp_path / "runs", Cancel(), watch=StatusWatch(inventory, "train", lambda _: None))
    (folder,) = (tmp_path / "runs").iterdir()
    assert read_run(folder).reason == "ps:0 is gone"


def test_another_coordinator_goes_on_with_the_history(inventory: Inventory, tmp_path: Path) -> None:
    def killed(folder: RunFolder) -> None:
        train(first)(folder)
        raise ClusterError("killed")

    first = StatusWatch(inventory, "train", lambda _: None)
    with pytest.raises(ClusterError):
        conduct(Played(killed), tmp_path / "runs", Cancel(), watch=first)
    (folder,) = (tmp_path / "runs").iterdir()
    seen: dict[str, Any] = {}
    second = StatusWatch(inventory, "train", lambda _: None)
    conduct(
        Played(lambda _: seen.update(status(inventory))), tmp_path / "runs", Cancel(), resumed=folder, watch=second
    )  # fmt: skip
    assert (seen["state"], seen["run"], len(seen["train"]["epochs"])) == ("running", folder.name, 1)
    kinds = [event["kind"] for event in seen["events"]]
    assert kinds.index("failed") < kinds.index("resumed")
    assert seen["started"] == json.loads((folder / NAME).read_text().splitlines()[0])["started"]
    view = read_run(folder)
    assert view.state == "done"
    assert sum(role.departures for node in view.nodes for role in node.roles) == 1


def test_a_taken_port_is_a_warning_and_the_job_goes_on(
    inventory: Inventory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[str] = []
    with socket.create_server(("127.0.0.1", inventory.task("coordinator", 0).page_port or 0)):
        watch = StatusWatch(inventory, "train", said.append)
        path, result = conduct(Played(), tmp_path / "runs", Cancel(), watch=watch)
    assert result["status"] == "done"
    assert said == []
    (line,) = [record.getMessage() for record in caplog.records if "live page" in record.getMessage()]
    assert "is taken by process" in line
    assert "--set ports.coordinator_page=PORT" in line
    assert line in [event.text for event in read_run(path.parent).events]


def test_no_page_where_none_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(local_inventory(1))
    inventory, said = load(path, ["page.listen=off"]), list[str]()

    def run(_: RunFolder) -> None:
        with pytest.raises(httpx.ConnectError):
            status(inventory)

    found, _ = conduct(
        Played(run), tmp_path / "runs", Cancel(), watch=StatusWatch(inventory, "train", said.append)
    )  # fmt: skip
    assert said == []
    assert read_run(found.parent).state == "done"


def test_a_folder_that_takes_no_history_costs_the_history_alone(inventory: Inventory, tmp_path: Path) -> None:
    def block(folder: RunFolder) -> None:
        (folder.path / NAME).unlink()
        (folder.path / NAME).mkdir()

    watch = StatusWatch(inventory, "train", lambda _: None)

    def run(folder: RunFolder) -> None:
        watch._history.keep()  # type: ignore[union-attr]  # it has begun
        block(folder)
        train(watch)(folder)
        assert not watch._history.keep()  # type: ignore[union-attr]  # it has begun

    _, result = conduct(Played(run), tmp_path / "runs", Cancel(), watch=watch)
    assert result["status"] == "done"


def test_over_ssh_it_says_the_way_in() -> None:
    inventory = load(Path("inventory.yaml"))
    way = way_in(inventory, "127.0.0.1", 9203)
    assert way == " on rpi11; from elsewhere after `ssh -N -L 9203:127.0.0.1:9203 pi@192.168.1.26`"
    assert way_in(inventory, "192.168.1.26", 9203) == ""


def epochs_in(folder: Path) -> list[int]:
    lines = [json.loads(line) for line in (folder / NAME).read_text().splitlines()]
    return [line["epoch"] for line in lines if line["event"] == "epoch"]


def test_an_epoch_is_on_disk_before_anything_else_happens(inventory: Inventory, tmp_path: Path) -> None:
    """A checkpoint may follow it: without its line a resumed run would lack the epoch for ever."""
    found: list[list[int]] = []

    def run(folder: RunFolder) -> None:
        for number in (1, 2):
            job.stream.emit(EpochEnded("train", number, 0.5, 0.9, 0.01, 100.0, 0.0, None))
            found.append(epochs_in(folder.path))

    job = Played(run)
    conduct(job, tmp_path / "runs", Cancel(), watch=StatusWatch(inventory, "train", lambda _: None))
    assert found == [[1], [1, 2]]


def test_a_run_that_is_resumed_has_each_epoch_once(inventory: Inventory, tmp_path: Path) -> None:
    def epochs(job: Played, *numbers: int) -> None:
        for number in numbers:
            job.stream.emit(EpochEnded("train", number, 0.5 / number, 0.9, 0.01, 100.0, 0.0, None))

    def killed(_: RunFolder) -> None:
        epochs(first, 1, 2, 3)
        raise ClusterError("killed")

    first = Played(killed)
    with pytest.raises(ClusterError):
        conduct(first, tmp_path / "runs", Cancel(), watch=StatusWatch(inventory, "train", lambda _: None))
    (folder,) = (tmp_path / "runs").iterdir()

    def resumed(_: RunFolder) -> None:
        second.stream.emit(Restored(1, 0))
        epochs(second, 2, 3, 4)

    second = Played(resumed)
    conduct(second, tmp_path / "runs", Cancel(), folder, StatusWatch(inventory, "train", lambda _: None))
    assert epochs_in(folder) == [1, 2, 3, 4]
    view = read_run(folder)
    assert view.train is not None
    assert [found.epoch for found in view.train.epochs] == [1, 2, 3, 4]
    assert sum("epoch 3" in event.text for event in view.events) == 2


def test_a_run_of_an_earlier_version_is_resumed_with_a_new_history(inventory: Inventory, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "20260101T000000Z-train"
    folder.mkdir(parents=True)
    (folder / "coordinator.log").touch()
    (folder / NAME).write_text('{"record": "begin", "schema": 1}\n')
    path, _ = conduct(
        Played(), tmp_path / "runs", Cancel(), folder, StatusWatch(inventory, "train", lambda _: None)
    )  # fmt: skip
    assert json.loads((path.parent / NAME).read_text().splitlines()[0])["event"] == "began"
    assert read_run(folder).state == "done"
