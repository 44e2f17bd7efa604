"""The announced address: from the key, from a host name, or from the interface; never one that others cannot reach."""

from pathlib import Path

import netifaces
import pytest

from cluster.inventory import Machine, located, this_machine
from cluster.inventory.loading import loads
from tests.inventory.cases import THREE_NODES, edited, machine, only, problems, read

ONE_NODE = """\
schema: 1
cluster: one
connection: local
nodes:
  - name: here
    address: 127.0.0.1
    roles: [ps, worker, coordinator]
"""
BY_INTERFACE = edited(("address: 192.168.1.16", "interface: eth0"))


def test_an_interface_gives_the_address_it_has_on_this_machine() -> None:
    assert read(BY_INTERFACE, on=machine({"eth0": ("10.0.0.5", "10.0.0.6")})).task("ps", 0).host == "10.0.0.5"


def test_the_inventorys_interface_serves_nodes_without_one() -> None:
    text = edited(("    address: 192.168.1.16\n", ""), ("cluster:", "interface: eth0\ncluster:"))

    assert read(text).task("ps", 0).host == "10.0.0.5"


def test_an_interface_without_an_address() -> None:
    found = only(BY_INTERFACE, on=machine({"lo": ("127.0.0.1",), "eth0": (), "wlan0": ("10.0.0.9",)}))

    assert (found.line, found.key, found.value) == (6, "nodes.rpi01.interface", "'eth0'")
    assert "no IPv4 address" in found.problem
    assert "wlan0 (10.0.0.9)" in found.remedy


def test_an_interface_that_is_not_there() -> None:
    found = only(BY_INTERFACE, on=machine({"enp3s0": ("10.0.0.9",)}))

    assert "no such interface" in found.problem
    assert "enp3s0 (10.0.0.9)" in found.remedy


def test_two_nodes_cannot_both_be_this_machine() -> None:
    text = edited(("address: 192.168.1.17", "interface: eth0"), text=BY_INTERFACE)

    assert only(text).problem == "the same address as rpi01, 10.0.0.5"


def test_a_host_name_is_announced_as_its_address() -> None:
    text = edited(("192.168.1.17", "rpi02.local"))

    assert read(text, on=machine(names={"rpi02.local": "192.168.1.99"})).task("worker", 0).host == "192.168.1.99"


def test_a_host_name_that_is_another_nodes_address() -> None:
    found = only(edited(("192.168.1.17", "rpi02.local")), on=machine(names={"rpi02.local": "192.168.1.18"}))

    assert (found.key, found.problem) == ("nodes.rpi03.address", "the same address as rpi02")


def test_a_host_name_that_debian_maps_to_127_0_1_1() -> None:
    found = only(edited(("192.168.1.17", "rpi02")), on=machine(names={"rpi02": "127.0.1.1"}))

    assert (found.line, found.key, found.value) == (9, "nodes.rpi02.address", "'rpi02'")
    assert "127.0.1.1" in found.problem
    assert "/etc/hosts" in found.problem


def test_a_host_name_nobody_knows() -> None:
    assert "no IPv4 address" in only(edited(("192.168.1.17", "rpi02.lan"))).problem


def test_a_cluster_that_is_only_looked_at_is_found_as_far_as_it_can_be() -> None:
    text = edited(
        ("192.168.1.17", "rpi02.local"), ("192.168.1.18", "gone.local"), ("address: 192.168.1.16", "interface: eth0")
    )
    unasked = loads(text, "mine.yaml", (), path=Path("mine.yaml"), machine=None)
    here = machine({"eth0": ("10.0.0.5",)}, {"rpi02.local": "192.168.1.99"})
    assert located(unasked, here).hosts == {"rpi01": "10.0.0.5", "rpi02": "192.168.1.99", "rpi03": "gone.local"}
    assert located(unasked, here).task("worker", 0).host == "192.168.1.99"
    assert located(unasked, machine({})).hosts["rpi01"] == "rpi01"


@pytest.mark.parametrize("address", ["-", "a b", "a..b", "x" * 64, "ä.de", "rpi02/24", "$(id)", "10.0.0.1/8"])
def test_what_is_neither_address_nor_name(address: str) -> None:
    assert "nor a host name" in only(edited(("192.168.1.17", f"'{address}'"))).problem


def test_a_local_cluster_needs_an_address_of_this_machine() -> None:
    found = only(ONE_NODE.replace("127.0.0.1", "192.168.1.16"))

    assert "no address of this machine" in found.problem
    assert "eth0 (10.0.0.5)" in found.remedy
    assert "connection: ssh" in found.remedy


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "10.0.0.5"])
def test_a_local_cluster_on_an_address_of_this_machine(address: str) -> None:
    assert read(ONE_NODE.replace("127.0.0.1", address)).task("ps", 0).host == address


def test_one_node_over_ssh_may_be_this_machine() -> None:
    assert not problems(ONE_NODE.replace("local", "ssh"))


@pytest.mark.parametrize("here", [{"eth0": ("192.168.1.77",)}, {"eth0": ()}, {"wlan0": ("192.168.1.17",)}])
def test_a_node_whose_interface_has_another_address(here: dict[str, tuple[str, ...]]) -> None:
    text = edited(("address: 192.168.1.17", "address: 192.168.1.17\n    interface: eth0"))

    found = only(text, on=machine(here, hostname="rpi02"))

    assert (found.line, found.key) == (10, "nodes.rpi02.interface")
    assert "rpi02 announces 192.168.1.17" in found.problem


def test_the_interfaces_of_other_nodes_are_theirs() -> None:
    text = edited(("address: 192.168.1.17", "address: 192.168.1.17\n    interface: end0"))

    assert read(text).task("worker", 0).host == "192.168.1.17"


def test_nothing_is_asked_of_the_machine_where_the_inventory_says_it_all() -> None:
    def asked(*_: object) -> str:
        pytest.fail("asked")

    silent = Machine(hostname=asked, interfaces=lambda: pytest.fail("asked"), resolve=asked)

    assert len(read(THREE_NODES, on=silent).tasks()) == 4


def test_netifaces_knows_the_loopback_interface_of_this_machine() -> None:
    interfaces = this_machine().interfaces()

    assert set(interfaces) == set(netifaces.interfaces())
    assert "127.0.0.1" in interfaces["lo"]


def test_this_machine_resolves_localhost_and_nothing_that_cannot_be() -> None:
    assert this_machine().resolve("localhost") == "127.0.0.1"
    assert this_machine().resolve("x" * 300) is None
