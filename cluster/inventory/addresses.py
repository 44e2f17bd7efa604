"""The address each node announces to the others, and everything that can be wrong with one."""

from collections.abc import Iterator, Mapping
from ipaddress import AddressValueError, IPv4Address

from cluster.inventory.machine import Machine
from cluster.inventory.nodes import Node
from cluster.inventory.problem import Problem
from cluster.inventory.salvage import Parts
from cluster.inventory.sources import Sources
from cluster.inventory.yaml_document import KeyPath

_WRITE_ADDRESS = "write the IPv4 address at which the other nodes reach this one"


def announce(parts: Parts, sources: Sources, machine: Machine | None) -> tuple[dict[str, str], list[Problem]]:
    """Announced IPv4 address by node name, and the problems of addresses and interfaces.

    Without a machine, host names and interfaces are taken as they are and nodes without an address are left out.
    """
    hosts: dict[str, str] = {}
    problems: list[Problem] = []
    taken: dict[str, str] = {}
    interfaces = {} if machine is None else machine.interfaces()
    for index, node in parts.nodes:
        path: KeyPath = ("nodes", index)
        if node.address is not None:
            host, found = _given(node.address, (*path, "address"), sources, machine)
        else:
            host, found = _of_interface(node, path, parts, sources, machine, interfaces)
        problems += found
        if host is None:
            continue
        key = "address" if node.address is not None else "interface"
        problems += _usable(host, (*path, key), parts, sources)
        if host in taken:
            what = f"the same address as {taken[host]}" + ("" if host == node.address else f", {host}")
            problems.append(sources.problem((*path, key), what, "give each node an address of its own"))
        taken.setdefault(host, node.name)
        hosts.setdefault(node.name, host)
        if machine is not None:
            problems += _on_this_machine(node, host, path, parts, sources, machine.hostname(), interfaces)
    return hosts, problems


def _given(
    address: str, path: KeyPath, sources: Sources, machine: Machine | None
) -> tuple[str | None, list[Problem]]:
    try:
        return str(IPv4Address(address)), []
    except AddressValueError:
        pass
    if all(character in "0123456789." for character in address):
        return None, [sources.problem(path, "not an IPv4 address", "write four numbers from 0 to 255")]
    if ":" in address:
        return None, [sources.problem(path, "not an IPv4 address", "IPv6 and ports do not go here: write IPv4 alone")]
    if not _host_name(address):
        return None, [sources.problem(path, "neither an IPv4 address nor a host name", _WRITE_ADDRESS)]
    if machine is None:
        return address, []
    resolved = machine.resolve(address)
    if resolved is None:
        return None, [sources.problem(path, "this host name has no IPv4 address", _WRITE_ADDRESS)]
    if resolved == "127.0.1.1":
        what = "this host name resolves to 127.0.1.1, which Debian gives a machine's own name in /etc/hosts"
        return None, [sources.problem(path, what, _WRITE_ADDRESS)]
    return resolved, []


def _host_name(text: str) -> bool:
    labels = text.removesuffix(".").split(".")
    return len(text) <= 253 and all(
        0 < len(label) <= 63 and label.isascii() and label.replace("-", "").replace("_", "").isalnum()
        for label in labels
    )


def _of_interface(
    node: Node,
    path: KeyPath,
    parts: Parts,
    sources: Sources,
    machine: Machine | None,
    interfaces: Mapping[str, tuple[str, ...]],
) -> tuple[str | None, list[Problem]]:
    name = node.interface or parts.interface
    if name is None:
        if any(sources.has((*path, key)) and sources.at((*path, key)) is not None for key in ("address", "interface")):
            return None, []  # given, but unreadable: the schema has said so
        return None, [sources.problem(path, "neither `address` nor `interface`", "add `address:` with its IPv4 address")]
    if machine is None:
        return None, []
    where = (*path, "interface") if node.interface else ("interface",)
    found = interfaces.get(name)
    if found is None:
        return None, [sources.problem(where, "this machine has no such interface", f"choose one of {_listed(interfaces)}")]
    if not found:
        remedy = f"plug in its cable or bring it up, or choose one of {_listed(interfaces)}"
        return None, [sources.problem(where, "this interface has no IPv4 address", remedy)]
    return found[0], []


def _listed(interfaces: Mapping[str, tuple[str, ...]]) -> str:
    return ", ".join(f"{name} ({found[0]})" for name, found in sorted(interfaces.items()) if found) or "none has one"


def _usable(host: str, path: KeyPath, parts: Parts, sources: Sources) -> Iterator[Problem]:
    try:
        address = IPv4Address(host)
    except AddressValueError:  # a host name nobody resolved
        return
    if address.is_loopback and parts.node_count > 1 and not parts.local:
        what = f"a loopback address in an inventory of {parts.node_count} nodes: every node would mean itself"
        yield sources.problem(path, what, _WRITE_ADDRESS)
    elif address.is_unspecified or address.is_multicast or (address.is_reserved and not address.is_private):
        yield sources.problem(path, "not the address of one machine", _WRITE_ADDRESS)
    elif address == IPv4Address("255.255.255.255"):
        yield sources.problem(path, "the broadcast address", _WRITE_ADDRESS)
    elif address.is_global and not parts.allow_public:
        what = "a public address: TensorFlow's port runs any graph that anyone sends it"
        yield sources.problem(path, what, "use a private address, or set `allow_public: true` behind a firewall")


def _on_this_machine(
    node: Node,
    host: str,
    path: KeyPath,
    parts: Parts,
    sources: Sources,
    hostname: str,
    interfaces: Mapping[str, tuple[str, ...]],
) -> Iterator[Problem]:
    """A node can be checked against the machine's own interfaces where that machine is the node."""
    own = {address for found in interfaces.values() for address in found}
    if parts.local:
        if host not in own and not host.startswith("127."):
            what = f"`connection: local` starts every role here, and {host} is no address of this machine"
            yield sources.problem((*path, "address"), what, f"choose one of {_listed(interfaces)}")
        return
    name = node.interface or parts.interface
    is_here = host in own or hostname.partition(".")[0].lower() == node.name.lower()
    if name is not None and node.address is not None and is_here and host not in interfaces.get(name, ()):
        where = (*path, "interface") if node.interface else ("interface",)
        found = ", ".join(interfaces.get(name, ())) or "no IPv4 address"
        what = f"this machine is {node.name}, whose {name} has {found} instead of the announced {host}"
        yield sources.problem(where, what, f"correct the address, or choose one of {_listed(interfaces)}")
