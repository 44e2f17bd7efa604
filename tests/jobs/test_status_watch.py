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
from cluster.jobs.coordinator_metrics import CoordinatorMetrics
from cluster.jobs.figures import figures
from cluster.jobs.lifecycle import conduct
from cluster.jobs.observer import EpochReport, Observers, Update, WorkedStep
from cluster.jobs.run_folder import RunFolder
from cluster.jobs.status_watch import StatusWatch
from cluster.status.history import read_run
from cluster.status.history_file import NAME

PARTS = {"pull": 0.1, "compute": 0.2, "push": 0.1, "wait": 0.0}


class Played:
    """A job that does what it is made with."""

    name = "train"

    def __init__(
        self, run: Callable[[RunFolder], None] = lambda _: None, prepare: Callable[[], None] = lambda: None
    ) -> None:
        self._run, self._prepare = run, prepare
        self.metrics, self.observers = CoordinatorMetrics(), Observers()

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
        told = watch.observer
        membership = Membership([0, 1])
        for worker in membership.workers.values():
            worker.phase = Phase.IDLE
        told.membership(membership)
        told.look()
        told.stage("train", 4, "updates")
        told.planned(1, 0, 0.01)
        for number in range(4):
            told.step(WorkedStep(number % 2, 20, float(number), 0.5, PARTS))
            told.update(Update(number, number + 1, 4, 0.5, 0.01, 100.0))
            told.advanced(number + 1)
        confusion = np.array([[3, 1], [0, 4]])
        found = figures(confusion, 4.0)
        told.figures("validation", found, ["sit", "walk"], confusion, 1)
        told.epoch("train", EpochReport(1, 0.5, 0.9, 0.01, 100.0, 0.0, found))
        told.checkpoint(0.1, 1_000_000, 4)
        membership.workers[1].phase, membership.workers[1].departures = Phase.ABSENT, 1
        told.look()
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
    assert (watch.observer.view().state, watch.observer.view().reason) == ("failed", "no such file")


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
        watch._keep()
        block(folder)
        train(watch)(folder)
        assert not watch._history.keep()  # type: ignore[union-attr]  # it has begun

    _, result = conduct(Played(run), tmp_path / "runs", Cancel(), watch=watch)
    assert result["status"] == "done"


def test_over_ssh_it_says_the_way_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cluster.jobs import live_page

    inventory = load(Path("inventory.yaml"))
    way = live_page._way_in(inventory, "127.0.0.1", 9203)
    assert way == " on rpi11; from elsewhere after `ssh -N -L 9203:127.0.0.1:9203 pi@192.168.1.26`"
    assert live_page._way_in(inventory, "192.168.1.26", 9203) == ""
