"""What carries the traffic between nodes: the network as it is, or WireGuard over it."""

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network

from core.documents.problem import InventoryProblem
from core.inventory.addresses import is_address
from core.inventory.sections import Wireguard
from core.inventory.sources import Sources


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
