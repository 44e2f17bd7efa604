"""What must hold between the parts of an inventory: names, addresses, roles, ports and storage."""

from collections.abc import Iterator, Mapping

from cluster.inventory.addresses import announce
from cluster.inventory.machine import Machine
from cluster.inventory.nodes import NodeRole, placed
from cluster.inventory.problem import Problem
from cluster.inventory.schema import Description
from cluster.inventory.schema_keys import is_misspelt
from cluster.inventory.sources import Parts, Sources
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


def _holders(parts: Parts, role: NodeRole) -> list[tuple[str, KeyPath]]:
    """Name of the node and place of the entry, for every entry of the role."""
    return [
        (node.name, ("nodes", index, "roles", position))
        for index, node in parts.nodes
        for position, entry in enumerate(node.roles)
        if entry.role == role
    ]


def _roles(parts: Parts, sources: Sources) -> Iterator[Problem]:
    for _, path in _holders(parts, "coordinator")[1:]:
        yield sources.problem(path, "a second coordinator", "keep one")
    for _, path in _holders(parts, "monitor")[1:]:
        yield sources.problem(path, "a second monitor", "keep one")
    for index, node in parts.nodes:
        entries = [entry.role for entry in node.roles]
        for position, role in enumerate(entries):
            if role == "storage" and role in entries[:position]:
                yield sources.problem(("nodes", index, "roles", position), "the role storage twice", "keep one")
    if not parts.complete:
        return  # the missing role may be one of those that could not be read
    required: tuple[tuple[NodeRole, str], ...] = (
        ("ps", "parameter server"),
        ("worker", "worker"),
        ("coordinator", "coordinator"),
    )
    for role, words in required:
        if not _holders(parts, role):
            yield sources.problem(("nodes",), f"no {words}", f"give a node the role {role}")


def _ports(parts: Parts, sources: Sources, hosts: Mapping[str, str]) -> Iterator[Problem]:
    taken: dict[tuple[int, int], str] = {}
    for task, (index, position) in placed(parts.nodes, parts.ports, hosts):
        if task.role == "coordinator" and task.index > 0:
            continue  # one too many, which is its own problem
        role: KeyPath = ("nodes", index, "roles", position)
        named = [(task.port, "port"), (task.metrics_port, "metrics_port")]
        if task.page_port is not None and parts.page:
            named.append((task.page_port, "page_port"))
        for port, name in named:
            user = f"{task.name}'s {name}"
            first = taken.setdefault((index, port), user)
            if first != user:
                written = (*role, task.role, name)
                what = f"port {port} on {task.node} is {first} already, and would be {user} too"
                example = "page_port: 3003" if name == "page_port" else "port: 3001, metrics_port: 3002"
                remedy = f"give it one of its own, e.g. `- {task.role}: {{{example}}}`"
                yield sources.problem(written if sources.has(written) else role, what, remedy)
    for node, path in _holders(parts, "monitor")[:1]:
        holder = taken.get((int(path[1]), parts.monitor.port))
        if holder is not None:
            key: KeyPath = ("monitor", "port")
            what = f"port {parts.monitor.port} on {node} is {holder} already, and would be the monitor's too"
            yield sources.problem(key if sources.has(key) else path, what, "give it one of its own, e.g. 9091")


def _storage(parts: Parts, sources: Sources) -> Iterator[Problem]:
    servers = _holders(parts, "storage")
    names = [name for name, _ in servers]
    for name, path in servers[1:]:
        if name != names[0]:
            yield sources.problem(path, "a second storage server", "keep one")
    if parts.storage is None:
        if servers and not sources.is_given(("storage",)) and not is_misspelt("storage", sources.value, Description):
            remedy = f"add `storage: {{server: {names[0]}}}`, or remove the role"
            yield sources.problem(servers[0][1], "the role storage, but no section `storage`", remedy)
    elif parts.storage.external is not None:
        if parts.storage.server is not None or servers:
            where = ("storage", "server") if parts.storage.server is not None else servers[0][1]
            yield sources.problem(where, "a storage server, and `storage.external` too", "keep one of them")
    elif parts.storage.server is None:
        remedy = (
            f"add `server: {names[0]}`" if names else "name a node as `server`, or an existing export as `external`"
        )
        yield sources.problem(("storage",), "neither `server` nor `external`", remedy)
    elif parts.complete and parts.storage.server not in names[:1]:
        remedy = f"write {names[0]}" if names else "give that node the role storage"
        yield sources.problem(("storage", "server"), "not the node with the role storage", remedy)
