"""The announced address: from the key, from a host name, or from the interface."""

from pathlib import Path

import netifaces
import pytest

from core.inventory import Machine, located, this_machine
from core.inventory.loading import loads
from tests.core.inventory.cases import THREE_NODES, edited, machine, read

BY_INTERFACE = ("address: 192.168.1.16", "interface: eth0")


def test_a_cluster_that_is_only_looked_at_is_found_as_far_as_it_can_be() -> None:
    text = edited(("192.168.1.17", "rpi02.local"), ("192.168.1.18", "gone.local"), BY_INTERFACE)
    unasked = loads(text, "mine.yaml", (), path=Path("mine.yaml"), machine=None)
    here = located(unasked, machine({"eth0": ("10.0.0.5",)}, {"rpi02.local": "192.168.1.99"}))
    assert here.hosts == {"rpi01": "10.0.0.5", "rpi02": "192.168.1.99", "rpi03": "gone.local"}
    assert here.task("worker", 0).host == "192.168.1.99"
    assert located(unasked, machine({})).hosts["rpi01"] == "rpi01"


def test_nothing_is_asked_of_the_machine_where_the_inventory_says_it_all() -> None:
    def asked(*_: object) -> str:
        pytest.fail("asked")

    silent = Machine(hostname=asked, interfaces=lambda: pytest.fail("asked"), resolve=asked)
    assert len(read(THREE_NODES, on=silent).tasks()) == 4


def test_this_machine_knows_its_interfaces_and_resolves_what_can_be() -> None:
    interfaces = this_machine().interfaces()
    assert set(interfaces) == set(netifaces.interfaces())
    assert "127.0.0.1" in interfaces["lo"]
    assert this_machine().resolve("localhost") == "127.0.0.1"
    assert this_machine().resolve("x" * 300) is None
