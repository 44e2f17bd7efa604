"""What must hold between the parts of an inventory: names, addresses, roles, ports and storage."""

import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from ipaddress import AddressValueError, IPv4Address

from cluster.host_names import is_host_name
from cluster.inventory.nodes import Node, NodeRole, placed
from cluster.inventory.problem import InventoryProblem
from cluster.inventory.schema import Description
from cluster.inventory.schema_keys import is_misspelt
from cluster.inventory.sources import Parts, Sources
from cluster.inventory.task import ROLE_NAMES
from cluster.inventory.yaml_document import KeyPath

_WRITE_ADDRESS = "write the IPv4 address at which the other nodes reach this one"


@dataclass(frozen=True)
class Machine:
    """The three questions; tests answer them without a network."""

    hostname: Callable[[], str]
    interfaces: Callable[[], Mapping[str, tuple[str, ...]]]
    resolve: Callable[[str], str | None]
    """IPv4 address of a host name, None when it has none."""


def _service(parts: Parts, sources: Sources) -> Iterator[InventoryProblem]:
    service = parts.service
    for position, name in enumerate(service.names):
        if not is_host_name(name):
            yield sources.problem(
                ("service", "names", position), "no name of a host", "write one such as har.example.org"
            )
    if (service.certificate is None) != (service.key is None):
        given = "certificate" if service.key is None else "key"
        yield sources.problem(("service", given), f"a {given} alone", "give both `certificate` and `key`, or neither")
    elif service.certificate is not None and not service.tls:
        yield sources.problem(("service", "certificate"), "a certificate, and `tls: false` too", "keep one of them")


def this_machine() -> Machine:
    """The machine this process runs on."""
    return Machine(hostname=socket.gethostname, interfaces=interface_addresses, resolve=_resolve)


def _resolve(name: str) -> str | None:
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError):
        return None


def interface_addresses() -> dict[str, tuple[str, ...]]:
    """IPv4 addresses of every interface of this machine; none for one that is down or has no cable."""
    import netifaces  # a C extension that most inventories never need

    found: dict[str, tuple[str, ...]] = {}
    for name in netifaces.interfaces():
        try:
            entries = netifaces.ifaddresses(name).get(netifaces.AF_INET, [])
        except ValueError:  # the interface went away between the two calls
            continue
        found[name] = tuple(str(entry["addr"]) for entry in entries if "addr" in entry)
    return found


def check(parts: Parts, sources: Sources, machine: Machine | None) -> tuple[Mapping[str, str], list[InventoryProblem]]:
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


def _roles(parts: Parts, sources: Sources) -> Iterator[InventoryProblem]:
    single: tuple[NodeRole, ...] = ("coordinator", "monitor")
    for role in single:
        for _, path in _holders(parts, role)[1:]:
            yield sources.problem(path, f"a second {role}", "keep one")
    for index, node in parts.nodes:
        entries = [entry.role for entry in node.roles]
        for position, entry in enumerate(entries):
            if entry in ("storage", "service") and entry in entries[:position]:
                yield sources.problem(("nodes", index, "roles", position), f"the role {entry} twice", "keep one")
    if parts.local:
        for _, path in _holders(parts, "service"):
            what = "the role service with `connection: local`"
            yield sources.problem(path, what, "take it out: `fab serve` answers on this machine")
    if not parts.complete:
        return  # the missing role may be one of those that could not be read
    for role in ROLE_NAMES:
        if not _holders(parts, role):
            words = "parameter server" if role == "ps" else role
            yield sources.problem(("nodes",), f"no {words}", f"give a node the role {role}")


def _ports(parts: Parts, sources: Sources, hosts: Mapping[str, str]) -> Iterator[InventoryProblem]:
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
    more: list[tuple[NodeRole, str, int, int]] = [
        ("monitor", "port", parts.monitor.port, 9091),
        ("service", "port", parts.service.port, 8471),
        ("service", "metrics_port", parts.service.metrics_port, 9205),
    ]
    for role_name, name, port, example_port in more:
        for node, path in _holders(parts, role_name)[: 1 if role_name == "monitor" else None]:
            user = f"the {role_name}'s" if name == "port" else f"the {role_name}'s {name}"
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


def announce(parts: Parts, sources: Sources, machine: Machine | None) -> tuple[dict[str, str], list[InventoryProblem]]:
    """Announced IPv4 address by node name, and the problems of addresses and interfaces.

    Without a machine, host names are taken as they are and nodes that only name an interface are left out.
    """
    announcer = _Announcer(parts, sources, machine)
    hosts: dict[str, str] = {}
    taken: dict[str, str] = {}
    places: list[tuple[Node, str, KeyPath]] = []
    for index, node in parts.nodes:
        host, path = announcer.host_of(index, node)
        if host is None:
            continue
        if host in taken:
            what = f"the same address as {taken[host]}" + ("" if host == node.address else f", {host}")
            announcer.problem(path, what, "give each node an address of its own")
        taken.setdefault(host, node.name)
        hosts.setdefault(node.name, host)
        places.append((node, host, path))
    any_elsewhere = any(not _is_loopback(host) for _, host, _ in places)
    for node, host, path in places:
        announcer.check_reachable(host, path, any_elsewhere)
        announcer.check_on_this_machine(node, host, path)
    return hosts, announcer.problems


class _Announcer:
    def __init__(self, parts: Parts, sources: Sources, machine: Machine | None) -> None:
        self.parts = parts
        self.sources = sources
        self.machine = machine
        self.problems: list[InventoryProblem] = []

    @cached_property
    def interfaces(self) -> Mapping[str, tuple[str, ...]]:
        return {} if self.machine is None else self.machine.interfaces()

    def problem(self, path: KeyPath, what: str, remedy: str) -> None:
        self.problems.append(self.sources.problem(path, what, remedy))

    def host_of(self, index: int, node: Node) -> tuple[str | None, KeyPath]:
        """The node's address, None where it has none that can be used, and the key to blame."""
        path: KeyPath = ("nodes", index)
        if node.address is not None:
            return self._resolved(node.address, (*path, "address")), (*path, "address")
        name, where = self._interface(node, path)
        if name is not None:
            return self._of_interface(name, where), where
        written = self.sources.at(path)
        if not any(
            self.sources.is_given((*path, key)) or is_misspelt(key, written, Node) for key in ("address", "interface")
        ):
            self.problem(path, "neither `address` nor `interface`", "add `address:` with its IPv4 address")
        return None, path

    def _interface(self, node: Node, path: KeyPath) -> tuple[str | None, KeyPath]:
        if node.interface is not None:
            return node.interface, (*path, "interface")
        return self.parts.interface, ("interface",)

    def _resolved(self, address: str, path: KeyPath) -> str | None:
        if is_address(address):
            return address
        if set(address) <= set("0123456789."):
            self.problem(path, "not an IPv4 address", "write four numbers from 0 to 255")
        elif ":" in address:
            self.problem(path, "not an IPv4 address", "IPv6 and ports do not go here: write IPv4 alone")
        elif not is_host_name(address):
            self.problem(path, "neither an IPv4 address nor a host name", _WRITE_ADDRESS)
        elif self.machine is None:
            return address
        else:
            resolved = self.machine.resolve(address)
            if resolved is None:
                self.problem(path, "this host name has no IPv4 address", _WRITE_ADDRESS)
            elif resolved == "127.0.1.1":
                what = "this host name resolves to 127.0.1.1, which Debian's /etc/hosts gives a machine's own name"
                self.problem(path, what, _WRITE_ADDRESS)
            else:
                return resolved
        return None

    def _of_interface(self, name: str, path: KeyPath) -> str | None:
        if self.machine is None:
            return None
        found = self.interfaces.get(name)
        if found:
            return found[0]
        if found is None:
            self.problem(path, "this machine has no such interface", f"choose one of {self._choices()}")
        else:
            remedy = f"plug in its cable or bring it up, or choose one of {self._choices()}"
            self.problem(path, "this interface has no IPv4 address", remedy)
        return None

    def _choices(self) -> str:
        usable = [f"{name} ({found[0]})" for name, found in sorted(self.interfaces.items()) if found]
        return ", ".join(usable) or "none: no interface of this machine has an address"

    def check_reachable(self, host: str, path: KeyPath, any_elsewhere: bool) -> None:
        """Report an address that other nodes cannot reach, or that the Internet can."""
        try:
            address = IPv4Address(host)
        except AddressValueError:  # an unresolved host name
            return
        many = self.parts.node_count > 1 and (any_elsewhere or not self.parts.local)
        if address.is_loopback and many:
            what = f"a loopback address in an inventory of {self.parts.node_count} nodes: each node would mean itself"
            self.problem(path, what, _WRITE_ADDRESS)
        elif address.is_multicast or address.is_reserved or address.packed[0] == 0:
            self.problem(path, "not the address of one machine", _WRITE_ADDRESS)
        elif address.is_global and not self.parts.allow_public:
            what = "a public address, and TensorFlow's port runs any graph that anyone sends it"
            self.problem(path, what, "use a private address, or set `allow_public: true` behind a firewall")

    def check_on_this_machine(self, node: Node, host: str, path: KeyPath) -> None:
        """A node that is the machine reading the inventory must have the address it announces."""
        if self.machine is None:
            return
        local = self.parts.local
        name, where = self._interface(node, path[:2])
        if node.address is not None and name is not None and (local or self._is_here(node, host)):
            own = self.interfaces.get(name, ())
            if host not in own:
                has = ", ".join(own) or "no IPv4 address"
                what = f"on this machine {name} has {has}, but {node.name} announces {host}"
                self.problem(where, what, f"correct the address, or choose one of {self._choices()}")
        elif local and not _is_loopback(host) and not self._is_own(host):
            what = "`connection: local` starts every role here, but this is no address of this machine"
            self.problem(path, what, f"choose one of {self._choices()}, or write `connection: ssh`")

    def _is_own(self, host: str) -> bool:
        return any(host in found for found in self.interfaces.values())

    def _is_here(self, node: Node, host: str) -> bool:
        assert self.machine is not None
        return self._is_own(host) or self.machine.hostname().partition(".")[0].lower() == node.name.lower()


def _is_loopback(host: str) -> bool:
    return host.startswith("127.")


def is_address(text: str) -> bool:
    """Four numbers, an IPv4 address."""
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True
