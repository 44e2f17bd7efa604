"""Draining before a restart: a real sshd and a real metrics port, behind which a played job answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from cluster.control.actions import Actions, Answer, DrainRequests
from cluster.control.token import VARIABLE
from cluster.inventory import Inventory, load
from cluster.inventory.templates import local_inventory
from cluster.metrics import exporter
from deploy.cluster.fleet import Fleet
from deploy.converge.draining import drain
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


@contextmanager
def job(inventory: Inventory, asked: list[tuple[str, float]]) -> Iterator[None]:
    """A coordinator's metrics port; notes what it is asked."""

    def answer(name: str, seconds: float) -> Answer:
        asked.append((name, seconds))
        return ANSWERS[name]

    ours = inventory.task("coordinator", 0)
    serving = exporter.serve(
        CollectorRegistry(), ours.host, ours.metrics_port, lambda: True, actions=Actions(DrainRequests(answer))
    )
    try:
        yield
    finally:
        serving.close()


def test_workers_are_drained_and_who_could_not_be_is_one_line(
    inventory: Inventory, fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, float]] = []
    with job(inventory, asked):
        drain(inventory, fleet, inventory.of_role("worker")[:3], seconds=7.5)
    assert sorted(asked) == [("worker:0", 7.5), ("worker:1", 7.5), ("worker:2", 7.5)]
    assert capsys.readouterr().out.splitlines() == [
        "drained worker:0, worker:1",
        "worker:2 could not be drained (no other worker was there to take its work): restarted anyway, others "
        "take over its work",
    ]


def test_on_one_machine_the_request_carries_the_cluster_s_token(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "a" * 64)  # the coordinator's, which is this process
    asked: list[tuple[str, float]] = []
    for token in ("a" * 64, "b" * 64):
        with job(inventory, asked), Fleet.here(inventory, {VARIABLE: token}) as here:
            drain(inventory, here, inventory.of_role("worker")[:1], seconds=7.5)
    assert asked == [("worker:0", 7.5)]
    drained, refused = capsys.readouterr().out.splitlines()
    assert drained == "drained worker:0"
    assert refused.startswith("worker:0 could not be drained (expected the cluster's token in the header")


def test_a_parameter_server_among_them_is_told_of_and_nobody_is_waited_for(
    inventory: Inventory, fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, float]] = []
    with job(inventory, asked):
        drain(inventory, fleet, [*inventory.of_role("ps"), *inventory.of_role("worker")])
        drain(inventory, fleet, inventory.of_role("worker"))  # nobody would be left
    assert asked == []
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("ps:0 holds the parameters of the job that runs")


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
