"""Ports that others have, or that the firewall would close, are found before a start."""

from typing import Any

import pytest

from deploy.render.network import firewall_mark
from tests.deploy.converge.examined import INVENTORY, found
from tests.deploy.converge.pi import thesis
from tests.deploy.converge.tables import rows

SSHD = "process 700 (sshd)"


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
    assert found(**owners, firewall=firewall_mark(INVENTORY, "rpi01")) == {}
    owners |= {"users": {"pscluster": (890, 890)}}
    owners |= {"uid_owners": {890: "pscluster"}, "gid_owners": {890: "pscluster"}}
    assert found(**owners, listening_uids={port: 890}) == {}
    assert found(**owners, listening_uids={port: 1000}) != {}
