"""What must hold between the parts of an inventory: names, addresses, roles, ports and storage."""

from collections.abc import Iterator, Mapping

from core.documents.problem import InventoryProblem
from core.documents.yaml_document import KeyPath
from core.ground.addresses import is_host_name
from core.inventory.addresses import Machine, announce
from core.inventory.nodes import NodeRole, placed
from core.inventory.schema import InventoryFile
from core.inventory.schema_keys import is_misspelt
from core.inventory.sources import Parts, Sources
from core.inventory.task import ROLE_NAMES


def _service(parts: Parts, sources: Sources) -> Iterator[InventoryProblem]:
    service = parts.service
    for position, name in enumerate(service.names):
        if not is_host_name(name):
            yield sources.problem(
                ("service", "names", position),
                "no name of a host",
                "write one such as har.example.org",
            )
    if (service.certificate is None) != (service.key is None):
        if service.key is None:
            given = "certificate"
        else:
            given = "key"
        yield sources.problem(
            ("service", given), f"a {given} alone", "give both `certificate` and `key`, or neither"
        )
    elif service.certificate is not None and not service.tls:
        yield sources.problem(
            ("service", "certificate"), "a certificate, and `tls: false` too", "keep one of them"
        )


def check(
    parts: Parts, sources: Sources, machine: Machine | None
) -> tuple[Mapping[str, str], list[InventoryProblem]]:
    """Announced address by node name, and every problem between parts that are each well-formed."""
    hosts, problems = announce(parts, sources, machine)
    problems += _names(parts, sources)
    problems += _roles(parts, sources)
    problems += _ports(parts, sources, hosts)
    problems += _storage(parts, sources)
    problems += _service(parts, sources)
    return hosts, problems


def _names(parts: Parts, sources: Sources) -> Iterator[InventoryProblem]:
    lines: dict[str, int | None] = {}
    for index, node in parts.nodes:
        path: KeyPath = ("nodes", index, "name")
        if node.name in lines:
            if lines[node.name] is None:
                first = ""
            else:
                first = f" on line {lines[node.name]}"
            yield sources.problem(
                path, f"also the name of a node{first}", "give each node a name of its own"
            )
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


def _roles(parts: Parts, sources: Sources) -> Iterator[InventoryProblem]:
    single: tuple[NodeRole, ...] = ("coordinator", "monitor")
    for role in single:
        for _, path in _holders(parts, role)[1:]:
            yield sources.problem(path, f"a second {role}", "keep one")
    for index, node in parts.nodes:
        entries = [entry.role for entry in node.roles]
        for position, entry in enumerate(entries):
            if entry in ("storage", "service") and entry in entries[:position]:
                yield sources.problem(
                    ("nodes", index, "roles", position), f"the role {entry} twice", "keep one"
                )
    if parts.local:
        for _, path in _holders(parts, "service"):
            what = "the role service with `connection: local`"
            yield sources.problem(path, what, "take it out: `fab serve` answers on this machine")
    if not parts.complete:
        return  # the missing role may be one of those that could not be read
    for role in ROLE_NAMES:
        if not _holders(parts, role):
            if role == "ps":
                words = "parameter server"
            else:
                words = role
            yield sources.problem(("nodes",), f"no {words}", f"give a node the role {role}")


def _ports(parts: Parts, sources: Sources, hosts: Mapping[str, str]) -> Iterator[InventoryProblem]:
    taken: dict[tuple[int, int], str] = {}
    for task, (index, position) in placed(parts.nodes, parts.ports, hosts):
        if task.role == "coordinator" and task.index > 0:
            continue  # one too many, which is its own problem
        role: KeyPath = ("nodes", index, "roles", position)
        named = [(task.port, "port"), (task.metrics_port, "metrics_port")]
        if task.page_port is not None and parts.page.listen != "off":
            named.append((task.page_port, "page_port"))
        for port, name in named:
            user = f"{task.name}'s {name}"
            first = taken.setdefault((index, port), user)
            if first != user:
                written = (*role, task.role, name)
                what = f"port {port} on {task.node} is {first} already, and would be {user} too"
                if name == "page_port":
                    example = "page_port: 3003"
                else:
                    example = "port: 3001, metrics_port: 3002"
                remedy = f"give it one of its own, e.g. `- {task.role}: {{{example}}}`"
                yield sources.problem(written if sources.has(written) else role, what, remedy)
    more: list[tuple[NodeRole, str, int, int]] = [
        ("monitor", "port", parts.monitor.port, 9091),
        ("service", "port", parts.service.port, 8471),
        ("service", "metrics_port", parts.service.metrics_port, 9205),
    ]
    for role_name, name, port, example_port in more:
        for node, path in _holders(parts, role_name)[: 1 if role_name == "monitor" else None]:
            if name == "port":
                user = f"the {role_name}'s"
            else:
                user = f"the {role_name}'s {name}"
            holder = taken.setdefault((int(path[1]), port), user)
            if holder != user:
                key: KeyPath = (role_name, name)
                what = f"port {port} on {node} is {holder} already, and would be {user} too"
                remedy = f"give it one of its own, e.g. {example_port}"
                yield sources.problem(key if sources.has(key) else path, what, remedy)


def _storage(parts: Parts, sources: Sources) -> Iterator[InventoryProblem]:
    servers = _holders(parts, "storage")
    names = [name for name, _ in servers]
    for name, path in servers[1:]:
        if name != names[0]:
            yield sources.problem(path, "a second storage server", "keep one")
    if parts.storage is None:
        if (
            servers
            and not sources.is_given(("storage",))
            and not is_misspelt("storage", sources.value, InventoryFile)
        ):
            remedy = f"add `storage: {{server: {names[0]}}}`, or remove the role"
            yield sources.problem(
                servers[0][1], "the role storage, but no section `storage`", remedy
            )
    elif parts.storage.external is not None:
        if parts.storage.server is not None or servers:
            where = ("storage", "server") if parts.storage.server is not None else servers[0][1]
            yield sources.problem(
                where, "a storage server, and `storage.external` too", "keep one of them"
            )
    elif parts.storage.server is None:
        if names:
            remedy = f"add `server: {names[0]}`"
        else:
            remedy = "name a node as `server`, or an existing export as `external`"
        yield sources.problem(("storage",), "neither `server` nor `external`", remedy)
    elif parts.complete and parts.storage.server not in names[:1]:
        if names:
            remedy = f"write {names[0]}"
        else:
            remedy = "give that node the role storage"
        yield sources.problem(("storage", "server"), "not the node with the role storage", remedy)
