"""What must hold between the parts of an inventory: names, addresses, roles, ports and storage."""

from collections.abc import Iterator, Mapping

from cluster.inventory.addresses import announce
from cluster.inventory.machine import Machine
from cluster.inventory.nodes import RoleEntry
from cluster.inventory.problem import Problem
from cluster.inventory.salvage import Parts
from cluster.inventory.sources import Sources
from cluster.inventory.tasks import placed
from cluster.inventory.yaml_document import KeyPath


def check(parts: Parts, sources: Sources, machine: Machine | None) -> tuple[Mapping[str, str], list[Problem]]:
    """Announced address by node name, and every problem between parts that are each well-formed."""
    hosts, problems = announce(parts, sources, machine)
    problems += _names(parts, sources)
    problems += _roles(parts, sources)
    problems += _ports(parts, sources, hosts)
    problems += _storage(parts, sources)
    return hosts, problems


def _names(parts: Parts, sources: Sources) -> Iterator[Problem]:
    lines: dict[str, int | None] = {}
    for index, node in parts.nodes:
        path: KeyPath = ("nodes", index, "name")
        if node.name in lines:
            first = "" if lines[node.name] is None else f" on line {lines[node.name]}"
            yield sources.problem(path, f"also the name of a node{first}", "give each node a name of its own")
        else:
            lines[node.name] = sources.origin(path)[0]


def _roles(parts: Parts, sources: Sources) -> Iterator[Problem]:
    coordinators: list[KeyPath] = []
    roles: set[str] = set()
    for index, node in parts.nodes:
        for position, entry in enumerate(node.roles):
            roles.add(entry.role)
            path: KeyPath = ("nodes", index, "roles", position)
            if entry.role == "coordinator":
                coordinators.append(path)
    for path in coordinators[1:]:
        yield sources.problem(path, "a second coordinator", "keep one", with_value=False)
    if not parts.complete:
        return  # the missing role may be one of those that could not be read
    for role, words in (("ps", "parameter server"), ("worker", "worker"), ("coordinator", "coordinator")):
        if role not in roles:
            yield sources.problem(("nodes",), f"no {words}", f"give a node the role {role}")


def _ports(parts: Parts, sources: Sources, hosts: Mapping[str, str]) -> Iterator[Problem]:
    taken: dict[tuple[str, int], str] = {}
    for task, (index, position) in placed(parts.nodes, parts.ports, hosts):
        entry = dict(parts.nodes)[index].roles[position]
        for port, name in ((task.port, "port"), (task.metrics_port, "metrics_port")):
            user = f"{task.name}'s {name}"
            if (task.host, port) not in taken:
                taken[(task.host, port)] = user
                continue
            path = _port_path(entry, index, position, name, sources)
            what = f"port {port} of {task.host} for {user} is already {taken[(task.host, port)]}"
            remedy = f"give it its own, e.g. `{task.role}: {{port: 3001, metrics_port: 3002}}` in the list of roles"
            yield sources.problem(path, what, remedy, with_value=False)


def _port_path(entry: RoleEntry, index: int, position: int, name: str, sources: Sources) -> KeyPath:
    """Where the port is written, or else the role that takes it from `ports`."""
    role: KeyPath = ("nodes", index, "roles", position)
    written = (*role, entry.role, name)
    return written if sources.has(written) else role


def _storage(parts: Parts, sources: Sources) -> Iterator[Problem]:
    servers = [
        (node.name, ("nodes", index, "roles", position))
        for index, node in parts.nodes
        for position, entry in enumerate(node.roles)
        if entry.role == "storage"
    ]
    for _, path in servers[1:]:
        yield sources.problem(path, "a second storage server", "keep one", with_value=False)
    if parts.storage is None:
        if servers and sources.at(("storage",)) in (None, sources.ABSENT):
            remedy = f"add `storage: {{server: {servers[0][0]}}}`, or remove the role"
            yield sources.problem(servers[0][1], "the role storage, but no section `storage`", remedy)
    elif parts.complete and (not servers or parts.storage.server != servers[0][0]):
        remedy = f"write {servers[0][0]}" if servers else "give that node the role storage"
        yield sources.problem(("storage", "server"), "not the node with the role storage", remedy)
