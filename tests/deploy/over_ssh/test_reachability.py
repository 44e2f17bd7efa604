"""Whether nodes reach what they need of one another: asked there, with that node's own Python."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.inventory import Inventory
from deploy.cluster.fleet import Fleet, Local
from deploy.converge import reachability
from deploy.converge.reachability import REFUSED, Unreached, found_unreached, needs_of, unreachable
from deploy.render.network import firewall_mark
from tests.core.inventory.cases import machine, read
from tests.deploy.converge.pi import thesis, untouched
from tests.deploy.over_ssh.nodes import fleet_of, trusting
from tests.deploy.over_ssh.sshd import GREETING, Sshd, running_sshd
from tests.deploy.tables import Tables

rows = Tables(__file__)

TEXT = """\
schema: 1
cluster: one
connection: ssh
storage: {{server: pi-1}}
nodes:
  - name: pi-1
    address: 127.0.0.1
    roles:
      - storage
      - coordinator
      - ps: {{port: {ps}, metrics_port: {ps_metrics}}}
      - worker: {{port: {worker}, metrics_port: {worker_metrics}}}
"""


@pytest.fixture
def inventory(sudo: None) -> Iterator[Inventory]:
    """One node; all of its ports answer but the worker's, which no process listens on."""
    with ExitStack() as stack:
        ports = {}
        for name in ("ps", "ps_metrics", "worker_metrics", "worker"):
            one = stack.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            ports[name] = one.getsockname()[1]
            if name != "worker":
                one.listen()
        yield read(TEXT.format(**ports), on=machine())


def test_a_role_that_nobody_answers_for_is_a_failure_of_its_node(
    sshd: Sshd, tmp_path: Path, inventory: Inventory
) -> None:
    with fleet_of(trusting(tmp_path, sshd), [("pi-1", sshd)]) as fleet:
        (failure,) = unreachable(inventory, fleet, ["pi-1"])
        assert unreachable(inventory, fleet, []) == []
    assert (failure.node, failure.phase, failure.step) == ("pi-1", "verify", "reach the roles")
    (worker,) = inventory.of_role("worker")
    assert failure.last_lines == (
        f"pi-1 does not reach worker:0 at {worker.address}: Connection refused",
    )


def test_what_a_start_file_prints_is_no_answer(tmp_path: Path, inventory: Inventory) -> None:
    with (
        running_sshd(tmp_path, GREETING) as sshd,
        fleet_of(trusting(tmp_path, sshd), [("pi-1", sshd)]) as fleet,
    ):
        (failure,) = unreachable(inventory, fleet, ["pi-1"])
    assert "pi-1 does not reach worker:0" in failure.line


@rows("probe", "line")
def test_an_answer_that_is_none_is_one_line(
    probe: str,
    line: str,
    sshd: Sshd,
    tmp_path: Path,
    inventory: Inventory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reachability, "_PROBE", probe)
    with fleet_of(trusting(tmp_path, sshd), [("pi-1", sshd)]) as fleet:
        (failure,) = unreachable(inventory, fleet, ["pi-1"])
    assert line in failure.line


SERVER = "rpi11"
"""Of the shipped inventory: storage, parameter server and coordinator. The others are workers
alone."""


def test_every_node_needs_its_servers_and_the_shared_folder_alone() -> None:
    needed = {(need.host, need.port) for need in needs_of(thesis(), "rpi01")}
    assert needed == {("192.168.1.26", 2222), ("192.168.1.26", 2049)}
    of_coordinator = {(need.provider, need.port) for need in needs_of(thesis(), SERVER)}
    workers = {(f"rpi{number:02d}", port) for number in range(1, 17) for port in (2223, 9201)}
    assert of_coordinator == {*workers, (SERVER, 2222), (SERVER, 9200)}


def test_a_monitor_needs_the_metrics_and_an_external_export_is_asked_for_too() -> None:
    inventory = read(EXTERNAL, ["deployment.node_exporter=true"], on=machine())
    needs = {need.words: need.blamed for need in needs_of(inventory, "b")}
    assert needs.keys() >= {
        "the shared folder at nas.local:2049",
        "metrics of ps:0 at 192.168.1.1:9200",
        "node exporter of a at 192.168.1.1:9100",
    }
    assert {*needs.values()} == {"b", ""}  # jobs run without the monitor


EXTERNAL = """\
schema: 1
cluster: two
connection: ssh
storage: {external: "nas.local:/volume"}
nodes:
  - {name: a, address: 192.168.1.1, roles: [ps, coordinator]}
  - {name: b, address: 192.168.1.2, roles: [worker, monitor]}
"""


JUDGED: dict[str, tuple[str, dict[str, object], bool]] = {
    "closed by another firewall": ("timed out", {}, True),
    "no route": ("No route to host", {}, True),
    "not started yet": (REFUSED, {}, False),
    "rejected though a process listens": (REFUSED, {"listening": {2222: "x"}}, True),
    "our firewall does not know the node yet": ("timed out", {"firewall": "older"}, False),
    "our firewall knows it": (
        "timed out",
        {"firewall": firewall_mark(thesis(), SERVER)},
        True,
    ),
}


@pytest.mark.parametrize(("reason", "changed", "counts"), JUDGED.values(), ids=JUDGED)
def test_what_a_worker_does_not_reach_is_found_before_a_start_and_after_it(
    monkeypatch: pytest.MonkeyPatch, reason: str, changed: dict[str, Any], counts: bool
) -> None:
    inventory = thesis()
    unreached = {"rpi02": (Unreached(needs_of(inventory, "rpi02")[0], reason),)}
    monkeypatch.setattr(reachability, "unreached_by", lambda _, node: unreached.get(node.name, ()))
    server = replace(untouched("192.168.1.26"), **changed)
    facts = {"rpi02": untouched("192.168.1.17"), SERVER: server}
    fleet = Fleet([Local(name) for name in facts], parallel=1)
    said = f"rpi02 does not reach ps:0 at 192.168.1.26:2222: {reason}"
    found = [
        (one.node, one.level, one.line) for one in found_unreached(inventory, fleet, facts, lost=())
    ]
    assert found == [("rpi02", "problem", f"{said}; {reachability.LOOK_AT}")] * counts
    (failure,) = unreachable(inventory, fleet, facts)
    assert failure.node == "rpi02"
    assert failure.line.startswith(f"rpi02: reach the roles: {said}; ")
    # A server that has left the run is said already; with --limit one may be stopped.
    assert unreachable(inventory, fleet, ["rpi02"], lost=[SERVER]) == []
    assert bool(unreachable(inventory, fleet, ["rpi02"])) == (reason != REFUSED)
