"""What `fab init` writes is an inventory to start from."""

import socket
from pathlib import Path

import pytest

from core.ground.errors import ClusterError, UsageError
from core.ground.ports import LOWEST_PORT, free_ports
from core.inventory import ROLE_NAMES, InventoryError
from core.inventory.templates import (
    expand_hosts,
    hosts_inventory,
    local_inventory,
)
from tests.core.inventory.cases import PROJECT, read
from tests.tables import table


def test_one_machine_gets_as_many_roles_as_asked_with_free_ports_of_their_own() -> None:
    text = local_inventory(workers=3, ps=2, draw_ports=lambda count: range(5000, 5000 + count))
    inventory = read(text)
    assert inventory.connection == "local"
    assert [len(inventory.of_role(role)) for role in ROLE_NAMES] == [2, 3, 1]
    tasks = inventory.tasks()
    assert [task.address for task in tasks] == [
        f"127.0.0.1:{port}" for port in range(5000, 5012, 2)
    ]
    assert [task.metrics_port for task in tasks] == [*range(5001, 5012, 2)]


def test_the_written_recipe_is_the_one_in_the_repository() -> None:
    shipped = read((PROJECT / "inventories" / "local.yaml").read_text(encoding="utf-8"))
    assert read(local_inventory(recipe="unseen")).jobs == shipped.jobs


@pytest.mark.parametrize(("workers", "ps"), [(0, 1), (1, 0), (-1, 1), (129, 1), (1, 129)])
def test_a_cluster_that_cannot_be_is_refused(workers: int, ps: int) -> None:
    with pytest.raises(UsageError, match="1 to 128"):
        local_inventory(workers=workers, ps=ps)


def test_hosts_get_the_servers_first_and_workers_everywhere() -> None:
    inventory = read(hosts_inventory("192.168.1.16-31", user="lab", cluster="lab"))
    assert (inventory.connection, inventory.ssh.user, inventory.cluster) == ("ssh", "lab", "lab")
    addresses = [node.address for node in inventory.nodes]
    assert addresses == [f"192.168.1.{number}" for number in range(16, 32)]
    roles = [entry.role for entry in inventory.nodes[0].roles]
    assert roles == ["storage", "ps", "coordinator", "worker"]
    assert len(inventory.of_role("worker")) == 16


def test_host_names_name_the_nodes() -> None:
    text = hosts_inventory("alpha.lan,beta.lan")
    assert "{name: alpha, address: alpha.lan" in text
    assert "storage: {server: alpha" in text


@pytest.mark.parametrize(("hosts", "expected"), table("core/inventory/tables", "hosts").items())
def test_hosts_are_listed_or_counted(hosts: str, expected: list[str]) -> None:
    assert [*expand_hosts(hosts)] == expected


@pytest.mark.parametrize(("hosts", "message"), table("core/inventory/tables", "bad hosts").items())
def test_hosts_that_cannot_be_read(hosts: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        expand_hosts(hosts)


@pytest.mark.parametrize(
    ("hosts", "user"), [("10.0.0.1", "a: b"), ("10.0.0.1", 'x"}\nnodes: []'), ("127.0.0.1-2", "pi")]
)
def test_nothing_is_written_that_could_not_be_read(hosts: str, user: str) -> None:
    with pytest.raises(InventoryError):
        hosts_inventory(hosts, user)


def test_free_ports_are_free_and_not_for_outgoing_connections() -> None:
    outgoing = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    ports = [*free_ports(8)]
    assert len(ports) == 8
    assert ports == sorted(set(ports))
    assert ports[0] >= LOWEST_PORT
    assert ports[-1] < max(int(outgoing.split()[0]), LOWEST_PORT + 1000)
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_too_many_free_ports_are_an_error_and_no_endless_search() -> None:
    with pytest.raises(ClusterError, match="free TCP ports"):
        free_ports(100_000)
