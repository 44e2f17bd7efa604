"""The addresses at which the nodes of an inventory reach each other."""

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from ipaddress import AddressValueError, IPv4Address

from core.documents import InventoryProblem
from core.documents.yaml_document import KeyPath
from core.ground.addresses import is_host_name
from core.inventory.nodes import Node
from core.inventory.schema_keys import is_misspelt
from core.inventory.sources import ReadableSections, Sources

_WRITE_ADDRESS = "write the IPv4 address at which the other nodes reach this one"


@dataclass(frozen=True)
class Machine:
    """The three questions; tests answer them without a network."""

    hostname: Callable[[], str]
    interfaces: Callable[[], Mapping[str, tuple[str, ...]]]
    resolve: Callable[[str], str | None]
    """IPv4 address of a host name, None when it has none."""
    resolves_nodes: bool = True
    """Whether names of machines over SSH are resolved too; else they stay names."""


def this_machine() -> Machine:
    """The machine this process runs on."""
    return Machine(hostname=socket.gethostname, interfaces=interface_addresses, resolve=_resolve)


def _resolve(name: str) -> str | None:
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError):
        return None


def interface_addresses() -> dict[str, tuple[str, ...]]:
    """Return the IPv4 addresses of every interface of this machine.

    One that is down or has no cable has none.
    """
    import netifaces  # a C extension that most inventories never need

    addresses: dict[str, tuple[str, ...]] = {}
    for name in netifaces.interfaces():
        try:
            entries = netifaces.ifaddresses(name).get(netifaces.AF_INET, [])
        except ValueError:  # the interface went away between the two calls
            continue
        addresses[name] = tuple(str(entry["addr"]) for entry in entries if "addr" in entry)
    return addresses


def announce(
    sections: ReadableSections, sources: Sources, machine: Machine | None
) -> tuple[dict[str, str], list[InventoryProblem]]:
    """Announced IPv4 address by node name, and the problems of addresses and interfaces.

    Without a machine, host names are taken as they are and nodes that only name an interface are
    left out.
    """
    announcer = _Announcer(sections, sources, machine)
    hosts: dict[str, str] = {}
    node_by_host: dict[str, str] = {}
    places: list[tuple[Node, str, KeyPath]] = []
    for index, node in sections.nodes:
        host, path = announcer.host_of(index, node)
        if host is None:
            continue
        if host in node_by_host:
            what = f"the same address as {node_by_host[host]}" + (
                "" if host == node.address else f", {host}"
            )
            announcer.problem(path, what, "give each node an address of its own")
        node_by_host.setdefault(host, node.name)
        hosts.setdefault(node.name, host)
        places.append((node, host, path))
    any_elsewhere = any(not _is_loopback(host) for _, host, _ in places)
    for node, host, path in places:
        announcer.check_reachable(host, path, any_elsewhere)
        announcer.check_on_this_machine(node, host, path)
    return hosts, announcer.problems


class _Announcer:
    def __init__(
        self, sections: ReadableSections, sources: Sources, machine: Machine | None
    ) -> None:
        self.sections = sections
        self.sources = sources
        self.machine = machine
        self.problems: list[InventoryProblem] = []

    @cached_property
    def interfaces(self) -> Mapping[str, tuple[str, ...]]:
        if self.machine is None:
            return {}
        return self.machine.interfaces()

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
            self.sources.is_given((*path, key)) or is_misspelt(key, written, Node)
            for key in ("address", "interface")
        ):
            self.problem(
                path, "neither `address` nor `interface`", "add `address:` with its IPv4 address"
            )
        return None, path

    def _interface(self, node: Node, path: KeyPath) -> tuple[str | None, KeyPath]:
        if node.interface is not None:
            return node.interface, (*path, "interface")
        return self.sections.interface, ("interface",)

    def _resolved(self, address: str, path: KeyPath) -> str | None:
        if is_address(address):
            return address
        if set(address) <= set("0123456789."):
            self.problem(path, "not an IPv4 address", "write four numbers from 0 to 255")
        elif ":" in address:
            self.problem(
                path, "not an IPv4 address", "IPv6 and ports do not go here: write IPv4 alone"
            )
        elif not is_host_name(address):
            self.problem(path, "neither an IPv4 address nor a host name", _WRITE_ADDRESS)
        elif self.machine is None or not (self.sections.local or self.machine.resolves_nodes):
            return address
        else:
            resolved = self.machine.resolve(address)
            if resolved is None:
                self.problem(path, "this host name has no IPv4 address", _WRITE_ADDRESS)
            elif resolved == "127.0.1.1":
                what = (
                    "this host name resolves to 127.0.1.1, which Debian's /etc/hosts gives a"
                    " machine's own name"
                )
                self.problem(path, what, _WRITE_ADDRESS)
            else:
                return resolved
        return None

    def _of_interface(self, name: str, path: KeyPath) -> str | None:
        if self.machine is None:
            return None
        addresses = self.interfaces.get(name)
        if addresses:
            return addresses[0]
        if addresses is None:
            self.problem(
                path, "this machine has no such interface", f"choose one of {self._choices()}"
            )
        else:
            remedy = f"plug in its cable or bring it up, or choose one of {self._choices()}"
            self.problem(path, "this interface has no IPv4 address", remedy)
        return None

    def _choices(self) -> str:
        usable = [
            f"{name} ({addresses[0]})"
            for name, addresses in sorted(self.interfaces.items())
            if addresses
        ]
        return ", ".join(usable) or "none: no interface of this machine has an address"

    def check_reachable(self, host: str, path: KeyPath, any_elsewhere: bool) -> None:
        """Report an address that other nodes cannot reach, or that the Internet can."""
        try:
            address = IPv4Address(host)
        except AddressValueError:  # an unresolved host name
            return
        many = self.sections.node_count > 1 and (any_elsewhere or not self.sections.local)
        if address.is_loopback and many:
            what = (
                f"a loopback address in an inventory of {self.sections.node_count} nodes: each node"
                " would mean itself"
            )
            self.problem(path, what, _WRITE_ADDRESS)
        elif address.is_multicast or address.is_reserved or address.packed[0] == 0:
            self.problem(path, "not the address of one machine", _WRITE_ADDRESS)
        elif address.is_global and not self.sections.allow_public:
            what = "a public address, and TensorFlow's port runs any graph that anyone sends it"
            self.problem(
                path, what, "use a private address, or set `allow_public: true` behind a firewall"
            )

    def check_on_this_machine(self, node: Node, host: str, path: KeyPath) -> None:
        """A node that is the machine reading the inventory must have the address it announces."""
        if self.machine is None:
            return
        local = self.sections.local
        name, where = self._interface(node, path[:2])
        if not is_address(host):  # a name, which is not resolved here
            return
        if node.address is not None and name is not None and (local or self._is_here(node, host)):
            addresses = self.interfaces.get(name, ())
            if host not in addresses:
                has = ", ".join(addresses) or "no IPv4 address"
                what = f"on this machine {name} has {has}, but {node.name} announces {host}"
                self.problem(
                    where, what, f"correct the address, or choose one of {self._choices()}"
                )
        elif local and not _is_loopback(host) and not self._is_own(host):
            what = (
                "`connection: local` starts every role here, but this is no address of this machine"
            )
            self.problem(path, what, f"choose one of {self._choices()}, or write `connection: ssh`")

    def _is_own(self, host: str) -> bool:
        return any(host in addresses for addresses in self.interfaces.values())

    def _is_here(self, node: Node, host: str) -> bool:
        assert self.machine is not None
        return (
            self._is_own(host)
            or self.machine.hostname().partition(".")[0].lower() == node.name.lower()
        )


def _is_loopback(host: str) -> bool:
    return host.startswith("127.")


def is_address(text: str) -> bool:
    """Four numbers, an IPv4 address."""
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True
