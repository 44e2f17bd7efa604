"""Ports that others have, or that the firewall would close, are found before a start."""

from typing import Any

import pytest

from deploy.cluster.places import UNIT_FOLDER
from deploy.render import firewall
from tests.deploy.converge.examined import INVENTORY, found, problem, roots, running
from tests.deploy.converge.pi import thesis
from tests.deploy.converge.tables import rows

SSHD = "process 700 (sshd)"


def test_ports_of_our_own_roles_are_not_taken() -> None:
    def with_unit(holder: str, **unit: Any) -> dict[str, Any]:
        units = {"pscluster-worker-0.service": running(**unit)}
        return found(listening={2223: holder}, units=units)

    assert with_unit("process 812 (python)") == {}
    assert "port" in with_unit("process 9 (nc)", active="inactive")


def test_ports_of_a_role_that_gets_another_index_are_free_by_then() -> None:
    unit = "pscluster-worker-7.service"
    text = "ExecStart=python -m worker_node --task 7 --port 2223 --metrics-port 9201 --peers 16\n"
    changes: dict[str, Any] = {
        "listening": {2223: "process 812 (python)", 9201: "process 812 (python)"},
        "files": {f"{UNIT_FOLDER}/{unit}": roots(text)},
    }
    assert found(**changes, units={unit: running()}) == {}
    assert "port" in found(**changes, units={unit: running(active="failed")})


def test_a_way_in_that_the_firewall_would_close_is_told() -> None:
    line = found(listening={2222: SSHD})["ssh"].line  # the server's port, on another node
    alone = "the SSH server listens on port 2222 alone, which the firewall will close to all but"
    assert f"{alone} the nodes" in line
    assert "(`ports`)" in line
    assert "ssh" in found(listening={9202: SSHD})
    assert found(listening={22: SSHD, 2222: "process 701 (sshd)"}) == {}  # there is another way
    assert found(listening={2222: "process 1 (systemd)"}).keys() == {"firewall"}


@rows("ways_in")
def test_a_way_in_by_a_socket_of_systemd_is_that_of_the_inventory(row: Any) -> None:
    told = found(of=thesis(*row["settings"]), listening={2222: "process 1 (systemd)"})
    assert tuple(told) == row["topics"]


@pytest.mark.parametrize("port", [2222, 2240, 9200, 9202])
def test_a_process_of_the_owner_that_the_firewall_would_close_is_named(port: int) -> None:
    """It may be the port of a role of another node; once the table is loaded nothing changes."""
    owners: dict[str, Any] = {"listening": {22: SSHD, port: "process 9 (grafana)"}}
    closes = f"a start closes port {port} of process 9 (grafana) to all but the inventory's nodes"
    assert closes in found(**owners)["firewall"].line
    assert found(**owners, firewall=firewall.mark_of(INVENTORY, "rpi01")) == {}
    owners |= {"users": {"pscluster": (890, 890)}}
    owners |= {"uid_owners": {890: "pscluster"}, "gid_owners": {890: "pscluster"}}
    assert found(**owners, listening_uids={port: 890}) == {}
    assert found(**owners, listening_uids={port: 1000}) != {}


def test_what_the_owner_serves_on_ports_that_stay_open_is_no_finding() -> None:
    assert found(listening={22: SSHD, 2049: "a process", 9100: "process 9 (exporter)"}) == {}


def test_a_node_exporter_whose_port_is_taken_is_told_before_a_start() -> None:
    def of(holder: str, **changes: Any) -> str:
        inventory = thesis("deployment.node_exporter=true")
        return problem(of=inventory, listening={22: SSHD, 9100: holder}, **changes)

    line = of("process 5 (exporter)")
    taken = "port 9100 of the node exporter is taken by process 5 (exporter): stop it, or set"
    assert line.startswith(taken)
    ours = {"prometheus-node-exporter.service": running()}
    assert of("process 812 (prometheus-node)", units=ours) == ""
    assert of("process 5 (exporter)", units=ours) == line  # the unit is up for a moment
