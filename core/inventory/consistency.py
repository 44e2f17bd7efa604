"""What must hold between the parts of an inventory: names, addresses, roles, ports and storage.

Also between the tunnels: WireGuard may carry the traffic between nodes.
"""

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network

from core.documents import InventoryProblem
from core.documents.yaml_document import KeyPath
from core.ground.addresses import is_host_name
from core.inventory import ROLE_NAMES
from core.inventory.addresses import Machine, announce, is_address
from core.inventory.nodes import NodeRole, placed
from core.inventory.schema import InventoryFile
from core.inventory.schema_keys import is_misspelt
from core.inventory.sections import Wireguard
from core.inventory.sources import ReadableSections, Sources


def _service(sections: ReadableSections, sources: Sources) -> Iterator[InventoryProblem]:
    service = sections.service
    for position, name in enumerate(service.names):
        if not is_host_name(name):
            yield sources.problem(
                ("service", "names", position),
                "no name of a host",
                "write one such as har.example.org",
            )
    if (service.certificate is None) != (service.key is None):
        if service.key is None:
            lone_key = "certificate"
        else:
            lone_key = "key"
        yield sources.problem(
            ("service", lone_key),
            f"a {lone_key} alone",
            "give both `certificate` and `key`, or neither",
        )
    elif service.certificate is not None and not service.tls:
        yield sources.problem(
            ("service", "certificate"), "a certificate, and `tls: false` too", "keep one of them"
        )


def check(
    sections: ReadableSections, sources: Sources, machine: Machine | None
) -> tuple[Mapping[str, str], list[InventoryProblem]]:
    """Announced address by node name, and every problem between parts that are each well-formed."""
    hosts, problems = announce(sections, sources, machine)
    problems += _names(sections, sources)
    problems += _roles(sections, sources)
    problems += _ports(sections, sources, hosts)
    problems += _storage(sections, sources)
    problems += _service(sections, sources)
    return hosts, problems


def _names(sections: ReadableSections, sources: Sources) -> Iterator[InventoryProblem]:
    lines: dict[str, int | None] = {}
    for index, node in sections.nodes:
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


def _holders(sections: ReadableSections, role: NodeRole) -> list[tuple[str, KeyPath]]:
    """Name of the node and place of the entry, for every entry of the role."""
    return [
        (node.name, ("nodes", index, "roles", position))
        for index, node in sections.nodes
        for position, entry in enumerate(node.roles)
        if entry.role == role
    ]


def _roles(sections: ReadableSections, sources: Sources) -> Iterator[InventoryProblem]:
    single: tuple[NodeRole, ...] = ("coordinator", "monitor")
    for role in single:
        for _, path in _holders(sections, role)[1:]:
            yield sources.problem(path, f"a second {role}", "keep one")
    for index, node in sections.nodes:
        entries = [entry.role for entry in node.roles]
        for position, entry in enumerate(entries):
            if entry in ("storage", "service") and entry in entries[:position]:
                yield sources.problem(
                    ("nodes", index, "roles", position), f"the role {entry} twice", "keep one"
                )
    if sections.local:
        for _, path in _holders(sections, "service"):
            what = "the role service with `connection: local`"
            yield sources.problem(path, what, "take it out: `fab serve` answers on this machine")
    if not sections.complete:
        return  # the missing role may be one of those that could not be read
    for role in ROLE_NAMES:
        if not _holders(sections, role):
            if role == "ps":
                role_title = "parameter server"
            else:
                role_title = role
            yield sources.problem(("nodes",), f"no {role_title}", f"give a node the role {role}")


def _ports(
    sections: ReadableSections, sources: Sources, hosts: Mapping[str, str]
) -> Iterator[InventoryProblem]:
    user_by_port: dict[tuple[int, int], str] = {}
    for task, (index, position) in placed(sections.nodes, sections.ports, hosts):
        if task.role == "coordinator" and task.index > 0:
            continue  # one too many, which is its own problem
        role: KeyPath = ("nodes", index, "roles", position)
        named = [(task.port, "port"), (task.metrics_port, "metrics_port")]
        if task.page_port is not None and sections.page.listen != "off":
            named.append((task.page_port, "page_port"))
        for port, name in named:
            user = f"{task.name}'s {name}"
            first = user_by_port.setdefault((index, port), user)
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
        ("monitor", "port", sections.monitor.port, 9091),
        ("service", "port", sections.service.port, 8471),
        ("service", "metrics_port", sections.service.metrics_port, 9205),
    ]
    for role_name, name, port, example_port in more:
        for node, path in _holders(sections, role_name)[: 1 if role_name == "monitor" else None]:
            if name == "port":
                user = f"the {role_name}'s"
            else:
                user = f"the {role_name}'s {name}"
            holder = user_by_port.setdefault((int(path[1]), port), user)
            if holder != user:
                key: KeyPath = (role_name, name)
                what = f"port {port} on {node} is {holder} already, and would be {user} too"
                remedy = f"give it one of its own, e.g. {example_port}"
                yield sources.problem(key if sources.has(key) else path, what, remedy)


def _storage(sections: ReadableSections, sources: Sources) -> Iterator[InventoryProblem]:
    servers = _holders(sections, "storage")
    names = [name for name, _ in servers]
    for name, path in servers[1:]:
        if name != names[0]:
            yield sources.problem(path, "a second storage server", "keep one")
    if sections.storage is None:
        if (
            servers
            and not sources.is_given(("storage",))
            and not is_misspelt("storage", sources.value, InventoryFile)
        ):
            remedy = f"add `storage: {{server: {names[0]}}}`, or remove the role"
            yield sources.problem(
                servers[0][1], "the role storage, but no section `storage`", remedy
            )
    elif sections.storage.external is not None:
        if sections.storage.server is not None or servers:
            where = ("storage", "server") if sections.storage.server is not None else servers[0][1]
            yield sources.problem(
                where, "a storage server, and `storage.external` too", "keep one of them"
            )
    elif sections.storage.server is None:
        if names:
            remedy = f"add `server: {names[0]}`"
        else:
            remedy = "name a node as `server`, or an existing export as `external`"
        yield sources.problem(("storage",), "neither `server` nor `external`", remedy)
    elif sections.complete and sections.storage.server not in names[:1]:
        if names:
            remedy = f"write {names[0]}"
        else:
            remedy = "give that node the role storage"
        yield sources.problem(("storage", "server"), "not the node with the role storage", remedy)


def inner(links: Mapping[str, str], subnet: str) -> dict[str, str]:
    """Return each node's address in the tunnel; a name without an address stays as it is."""
    network = IPv4Network(subnet)
    host_mask = int(network.hostmask)
    addresses = {}
    for name, link in links.items():
        if is_address(link):
            address = int(network.network_address) | (int(IPv4Address(link)) & host_mask)
            addresses[name] = str(IPv4Address(address))
        else:
            addresses[name] = link
    return addresses


def tunnel_problems(
    settings: Wireguard, links: Mapping[str, str], sources: Sources
) -> Iterator[InventoryProblem]:
    """Yield what keeps the nodes from one tunnel, or would go past it in clear."""
    yield from _past_the_tunnel(sources)
    network = IPv4Network(settings.subnet)
    key = ("wireguard", "subnet")
    where = key if sources.has(key) else ("transport",)
    within = [name for name, link in links.items() if is_address(link)]
    outside = [name for name in within if IPv4Address(links[name]) in network]
    if outside:
        what = f"{settings.subnet} holds {links[outside[0]]}, which {outside[0]} announces"
        yield sources.problem(where, what, "choose a network that nothing here uses")
    name_by_address: dict[str, str] = {}
    addresses = inner(links, settings.subnet)
    for name in within:
        address = addresses[name]
        other = name_by_address.setdefault(address, name)
        if other != name:
            what = f"{other} and {name} would both be {address} in {settings.subnet}"
            yield sources.problem(where, what, "choose a larger network, e.g. 10.0.0.0/8")
        elif IPv4Address(address) in (network.network_address, network.broadcast_address):
            what = f"{name} would be {address}, which means all of {settings.subnet}"
            yield sources.problem(where, what, "choose a larger network, e.g. 10.0.0.0/8")


def _past_the_tunnel(sources: Sources) -> Iterator[InventoryProblem]:
    if sources.at(("connection",)) != "ssh":
        yield sources.problem(
            ("transport",),
            "wireguard without `connection: ssh`: one machine has no switch to hide from",
            "write `transport: plain`",
        )
    if sources.at(("deployment", "firewall")) is False:
        yield sources.problem(
            ("deployment", "firewall"),
            "the ports stay open beside the tunnel",
            "leave it out with `transport: wireguard`",
        )
    if sources.at(("deployment", "allow")) not in (sources.ABSENT, None, ()):
        yield sources.problem(
            ("deployment", "allow"),
            "readers outside the tunnel would get metrics in clear",
            "leave it out with `transport: wireguard`: `ssh -L` to a node reads them",
        )
    if sources.is_given(("storage", "external")):
        yield sources.problem(
            ("storage", "external"),
            "NFS of a machine outside the tunnel crosses the switch in clear",
            "give a node the role storage, or write `transport: plain`",
        )
