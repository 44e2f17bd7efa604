"""The watch of a job, with a job that does nothing: its page, its history, its end.

Real HTTP, no cluster.
"""

import json
import logging
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from cluster.jobs.evaluation import EvaluationResult, figures_computed
from cluster.jobs.run_folder import RunFolder
from cluster.jobs.status_watch import StatusWatch, way_in
from core.engine.membership import Membership, Phase
from core.ground.errors import ClusterError, UsageError
from core.inventory import Inventory, load
from core.status.events import (
    CheckpointWritten,
    EpochEnded,
    Restored,
)
from core.status.history import NAME
from core.status.parts import Figures
from core.status.past_run import read_run
from tests.cluster.jobs.kit import PlayedJob, Result, events_of, inventory_in, raising
from tests.hang import HANG_SECONDS
from tests.tables import table


class Killed(ClusterError):
    """What ends a job in its midst."""


class Played(PlayedJob):
    """A job that is watched."""

    def __init__(self, *played: Any, **named: Any) -> None:
        super().__init__(*played, **named)
        self.said: list[str] = []
        self.watch = StatusWatch(self, self.said.append)

    def watched(self, runs: Path, resumed: Path | None = None) -> Path:
        """The folder of the run, also where it fails."""
        with suppress(Killed):
            self.conducted(runs, resumed, self.watch)
        (folder,) = runs.iterdir()
        return folder


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    return inventory_in(tmp_path, workers=2)


def page(inventory: Inventory) -> str:
    return f"http://127.0.0.1:{inventory.task('coordinator', 0).page_port}"


def status(inventory: Inventory) -> Result:
    found: Result = httpx.get(f"{page(inventory)}/api/status").json()
    return found


def train(job: Played) -> None:
    """One epoch of four updates."""
    membership = Membership([0, 1])
    for worker in membership.workers.values():
        worker.phase = Phase.IDLE
    job.metrics.membership = membership
    job.watch.notice()
    emit = job.stream.emit
    for event in events_of(table("cluster/jobs/events", "four updates")):
        emit(event)
    found = Figures(accuracy=7 / 8, f1_macro=0.87, loss=0.5)
    confusion = np.array([[3, 1], [0, 4]])
    emit(figures_computed("validation", EvaluationResult(found, confusion, 8), ["sit", "walk"], 1))
    emit(EpochEnded("train", 1, 0.5, 0.9, 0.01, 100.0, 0.0, found))
    emit(CheckpointWritten(0.1, 1_000_000, 4))
    membership.workers[1].phase = Phase.ABSENT
    membership.workers[1].departures = 1
    job.watch.notice()
    logging.getLogger("anything").warning("the %s is hot", "node")


def test_a_run_is_shown_while_it_goes_on_and_kept_when_it_has_ended(
    inventory: Inventory, runs: Path
) -> None:
    pictures: list[Result] = []

    def run(folder: RunFolder) -> None:
        train(job)
        end = time.monotonic() + HANG_SECONDS
        while not (found := status(inventory))["run"]:  # an answer is given again for half a second
            assert time.monotonic() < end
            time.sleep(0.05)
        pictures.append(found)
        assert httpx.get(page(inventory)).status_code == 200

    job = Played(inventory, run, lambda: pictures.append(status(inventory)))
    folder = job.watched(runs)
    assert job.said == [f"live page: {page(inventory)}/"]
    preparing, running = pictures
    assert (preparing["state"], preparing["run"]) == ("preparing", "")
    assert (running["state"], running["run"]) == ("running", folder.name)
    assert running["progress"] == {"stage": "train", "done": 4, "total": 4, "unit": "updates"}
    assert running["train"]["parameters"] == 1234
    assert running["train"]["epochs"][0]["validation_accuracy"] == 0.875
    assert running["confusion"]["rows"] == [[3, 1], [0, 4]]
    roles = {role["task"]: role for node in running["nodes"] for role in node["roles"]}
    assert {task: role["state"] for task, role in roles.items()} == {
        "ps:0": "unknown",
        "worker:0": "idle",
        "worker:1": "absent",
        "coordinator:0": "up",
    }
    assert roles["worker:0"]["windows"] == 40
    assert {event["text"] for event in running["events"]} >= {
        "worker:1 left the cluster",
        "the node is hot",
    }
    view = read_run(folder)
    assert (view.state, view.run) == ("done", folder.name)
    assert view.train is not None
    assert (view.train.checkpoints, len(view.train.epochs)) == (1, 1)
    with pytest.raises(httpx.ConnectError):
        status(inventory)
    threads = {thread.name for thread in threading.enumerate()}
    assert not threads & {"page", "status", "history", "roles"}


def test_bad_input_is_shown_and_leaves_no_folder(inventory: Inventory, runs: Path) -> None:
    job = Played(inventory, prepare=raising(UsageError("no such file")))
    with pytest.raises(UsageError, match="no such file"):
        job.watched(runs)
    assert not runs.exists()
    view = job.status.view()
    assert (view.state, view.reason) == ("failed", "no such file")


def test_another_coordinator_goes_on_with_the_history(inventory: Inventory, runs: Path) -> None:
    def killed(_: RunFolder) -> None:
        train(first)
        raise Killed("killed")

    first = Played(inventory, killed)
    folder = first.watched(runs)
    assert read_run(folder).reason == "killed"
    seen: Result = {}
    Played(inventory, lambda _: seen.update(status(inventory))).watched(runs, folder)
    assert (seen["state"], seen["run"], len(seen["train"]["epochs"])) == ("running", folder.name, 1)
    kinds = [event["kind"] for event in seen["events"]]
    assert kinds.index("failed") < kinds.index("resumed")
    assert seen["started"] == lines_of(folder)[0]["started"]
    view = read_run(folder)
    assert view.state == "done"
    assert sum(role.departures for node in view.nodes for role in node.roles) == 1


def test_a_taken_port_is_a_warning_and_the_job_goes_on(
    inventory: Inventory, runs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", inventory.task("coordinator", 0).page_port or 0)):
        job = Played(inventory)
        view = read_run(job.watched(runs))
    assert (view.state, job.said) == ("done", [])
    (line,) = [message for message in caplog.messages if "live page" in message]
    assert "is taken by process" in line
    assert "--set ports.coordinator_page=PORT" in line
    assert line in [event.text for event in view.events]


def test_no_page_where_none_is_wanted(tmp_path: Path, runs: Path) -> None:
    inventory = inventory_in(tmp_path, "page.listen=off")

    def run(_: RunFolder) -> None:
        with pytest.raises(httpx.ConnectError):
            status(inventory)

    job = Played(inventory, run)
    assert read_run(job.watched(runs)).state == "done"
    assert job.said == []


def test_a_folder_that_takes_no_history_costs_the_history_alone(
    inventory: Inventory, runs: Path
) -> None:
    def run(folder: RunFolder) -> None:
        history = job.watch._history
        assert history is not None
        history.keep()
        (folder.path / NAME).unlink()
        (folder.path / NAME).mkdir()
        train(job)
        assert not history.keep()

    job = Played(inventory, run)
    folder = job.watched(runs)
    assert json.loads((folder / "result.json").read_text())["status"] == "done"


def test_over_ssh_it_says_the_way_in() -> None:
    inventory = load(Path("inventory.yaml"))
    way = way_in(inventory, "127.0.0.1", 9203)
    assert way == " on rpi11; from elsewhere after `ssh -N -L 9203:127.0.0.1:9203 pi@192.168.1.26`"
    assert way_in(inventory, "192.168.1.26", 9203) == ""


def lines_of(folder: Path) -> list[Result]:
    return [json.loads(line) for line in (folder / NAME).read_text().splitlines()]


def epochs_in(folder: Path) -> list[int]:
    return [line["epoch"] for line in lines_of(folder) if line["event"] == "epoch"]


def epoch(number: int) -> EpochEnded:
    return EpochEnded("train", number, 0.5 / number, 0.9, 0.01, 100.0, 0.0, None)


def test_a_run_that_is_resumed_has_each_epoch_once_and_on_disk_before_anything_else_happens(
    inventory: Inventory, runs: Path
) -> None:
    """A checkpoint may follow it: without its line a resumed run would lack the epoch for ever."""
    found: list[list[int]] = []

    def killed(folder: RunFolder) -> None:
        for number in (1, 2, 3):
            first.stream.emit(epoch(number))
            found.append(epochs_in(folder.path))
        raise Killed("killed")

    first = Played(inventory, killed)
    folder = first.watched(runs)
    assert found == [[1], [1, 2], [1, 2, 3]]

    def resumed(_: RunFolder) -> None:
        for event in (Restored(1, 0), epoch(2), epoch(3), epoch(4)):
            second.stream.emit(event)

    second = Played(inventory, resumed)
    second.watched(runs, folder)
    assert epochs_in(folder) == [1, 2, 3, 4]
    view = read_run(folder)
    assert view.train is not None
    assert [found.epoch for found in view.train.epochs] == [1, 2, 3, 4]
    assert sum("epoch 3" in event.text for event in view.events) == 2


def test_a_run_of_an_earlier_version_is_resumed_with_a_new_history(
    inventory: Inventory, runs: Path
) -> None:
    folder = runs / "20260101T000000Z-train"
    folder.mkdir(parents=True)
    (folder / "coordinator.log").touch()
    (folder / NAME).write_text('{"record": "begin", "schema": 1}\n')
    Played(inventory).watched(runs, folder)
    assert lines_of(folder)[0]["event"] == "began"
    assert read_run(folder).state == "done"
