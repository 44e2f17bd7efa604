"""From nodes and their roles to numbered role processes."""

from collections.abc import Mapping, Sequence

from cluster.inventory.nodes import Node, Ports, RoleEntry
from cluster.inventory.task import ROLE_NAMES, RoleName, Task

Place = tuple[int, int]
"""Where a task is written: index of the node, index of the role among the node's."""


def expand(nodes: Sequence[Node], ports: Ports, hosts: Mapping[str, str]) -> tuple[Task, ...]:
    """Every role process, by role and then in the order written. A node without a host is addressed by its name."""
    return tuple(task for task, _ in placed(list(enumerate(nodes)), ports, hosts))


def placed(nodes: Sequence[tuple[int, Node]], ports: Ports, hosts: Mapping[str, str]) -> list[tuple[Task, Place]]:
    """The same, each with the place in the inventory it comes from; `nodes` carry their index in the file."""
    defaults: dict[RoleName, tuple[int, int]] = {
        "ps": (ports.ps, ports.ps_metrics),
        "worker": (ports.worker, ports.worker_metrics),
        "coordinator": (ports.coordinator, ports.coordinator_metrics),
    }
    found: list[tuple[Task, Place]] = []
    for role in ROLE_NAMES:
        index = 0
        for position, node in nodes:
            for entry_index, entry in enumerate(node.roles):
                if entry.role != role:
                    continue
                port = entry.ports.port or defaults[role][0]
                metrics_port = entry.ports.metrics_port or defaults[role][1]
                host = hosts.get(node.name, node.name)
                page_port = _page_port(entry, ports) if role == "coordinator" else None
                task = Task(role, index, node.name, host, port, metrics_port, page_port)
                found.append((task, (position, entry_index)))
                index += 1
    return found


def _page_port(entry: RoleEntry, ports: Ports) -> int:
    return (entry.coordinator.page_port if entry.coordinator is not None else None) or ports.coordinator_page
