"""Workers are drained before a restart: over a real sshd, with a played job behind a real port."""

from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from core.control.actions import Actions, Answer
from core.control.own_state import VARIABLE
from core.inventory import Inventory, load
from core.inventory.templates import local_inventory
from core.metrics import exporter
from deploy.cluster.fleet import Fleet
from deploy.converge.coordinator import drain
from tests.deploy.over_ssh.nodes import fleet_of, trusting
from tests.deploy.over_ssh.sshd import Sshd, running_sshd

pytestmark = pytest.mark.usefixtures("sudo")

ANSWERS: dict[str, Answer] = {
    "worker:0": (HTTPStatus.OK, "drained"),
    "worker:1": (HTTPStatus.OK, "drained"),
    "worker:2": (HTTPStatus.CONFLICT, "no other worker was there to take its work"),
}


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    path = tmp_path / "inventory.yaml"
    path.write_text(local_inventory(4, 1))
    return load(path)


@pytest.fixture
def fleet(sshd: Sshd, inventory: Inventory, tmp_path: Path) -> Iterator[Fleet]:
    node = inventory.task("coordinator", 0).node
    with fleet_of(trusting(tmp_path, sshd), [(node, sshd)]) as opened:
        yield opened


class Job:
    """A coordinator's metrics port; notes what it is asked."""

    def __init__(self, inventory: Inventory) -> None:
        self.asked: list[tuple[str, float]] = []
        ours = inventory.task("coordinator", 0)
        self.close = exporter.serve(
            CollectorRegistry(),
            ours.host,
            ours.metrics_port,
            lambda: True,
            actions=Actions(self.drain),
        ).close

    def drain(self, name: str, seconds: float) -> Answer:
        self.asked.append((name, seconds))
        return ANSWERS[name]


@pytest.fixture
def job(inventory: Inventory) -> Iterator[Job]:
    made = Job(inventory)
    yield made
    made.close()


def test_workers_are_drained_and_who_could_not_be_is_one_line(
    inventory: Inventory, fleet: Fleet, job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    drain(inventory, fleet, inventory.of_role("worker")[:3], seconds=7.5)
    assert sorted(job.asked) == [(name, 7.5) for name in ANSWERS]
    assert capsys.readouterr().out == (
        "drained worker:0, worker:1\n"
        "worker:2 could not be drained (no other worker was there to take its work): restarted"
        " anyway, others take over its work\n"
    )


def test_on_one_machine_the_request_carries_the_cluster_s_token(
    inventory: Inventory,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(VARIABLE, "a" * 64)  # the coordinator's, which is this process
    job: Job = request.getfixturevalue("job")
    for token in ("a" * 64, "b" * 64):
        with Fleet.here(inventory, token) as here:
            drain(inventory, here, inventory.of_role("worker")[:1], seconds=7.5)
    assert job.asked == [("worker:0", 7.5)]
    drained, refused = capsys.readouterr().out.splitlines()
    assert drained == "drained worker:0"
    assert refused.startswith("worker:0 could not be drained (POST http://127.0.0.1:")
    assert "does not know the expected key" in refused


def test_without_a_job_there_is_nothing_to_say(
    inventory: Inventory, fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    drain(inventory, fleet, inventory.of_role("worker")[:1])
    drain(inventory, fleet, inventory.of_role("ps"))
    drain(inventory, fleet, [])
    assert capsys.readouterr().out == ""


def test_a_coordinators_node_that_is_not_there_is_one_line(
    inventory: Inventory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    with running_sshd(tmp_path / "gone") as gone:
        pinned = trusting(tmp_path, gone)
    with fleet_of(pinned, [(inventory.task("coordinator", 0).node, gone)]) as fleet:
        drain(inventory, fleet, inventory.of_role("worker")[:1])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("nothing was drained, should a job be running: ")
