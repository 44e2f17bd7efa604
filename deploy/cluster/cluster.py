"""One cluster as a command sees it: its inventory, services and nodes, at trusted addresses.

`deploy.commands.clusters` makes it, and no command asks for its kind again.

The address of a node is an IPv4 address whose key is pinned, or a host name as `fab deploy trust`
resolved it when it pinned the key: any machine on the switch may answer for a name, so nothing else
asks the network for one. The addresses are kept beside the keys. A node without one, or that says
it has another, is in no firewall and in no export of the others.
"""

import json
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from core.control.own_state import read_token
from core.ground.errors import ClusterError
from core.ground.files import atomic_write, read_json, read_object
from core.inventory import Machine
from core.inventory.addresses import is_address
from core.inventory.loading import addressed
from core.inventory.schema import Inventory
from deploy.cluster.connection import NodeConnection
from deploy.cluster.fleet import Fleet
from deploy.cluster.login import PinnedKeys, addresses, jump_address
from deploy.cluster.services import ServiceManager
from deploy.common.state_folder import StateFolder


@dataclass(frozen=True)
class ManagedCluster:
    """An inventory, the way to its nodes, and what keeps its roles.

    Making one connects to no node.
    """

    inventory: "Inventory"
    overrides: tuple[str, ...]
    """`KEY=VALUE` of this call, which `inventory` has already; another process needs them beside
    the file."""
    fleet: Callable[[], Fleet]
    """Makes a connector a node; the caller closes them."""
    services: ServiceManager

    @property
    def folder(self) -> StateFolder:
        """The cluster's files on this machine."""
        return StateFolder.of(self.inventory.path, self.inventory.cluster)

    @property
    def known_hosts(self) -> Path:
        """The pinned host keys."""
        return known_hosts_of(self.inventory)

    @property
    def deployments(self) -> Path:
        """Folder of the recaps."""
        return self.folder.path / "deployments"

    def nodes_gone(self) -> tuple[str, ...]:
        """Nodes that a deployment put roles on and that the inventory does not have any more."""
        try:
            remembered = read_json(self._nodes_file)
        except (OSError, ValueError):
            return ()
        if not isinstance(remembered, list):
            return ()
        names = {node.name for node in self.inventory.nodes}
        return tuple(name for name in remembered if isinstance(name, str) and name not in names)

    @property
    def lines_of_nodes_gone(self) -> tuple[str, ...]:
        """A line about nodes that were removed before their reset, or none."""
        gone = ",".join(self.nodes_gone())
        if not gone:
            return ()
        return (
            f"no longer in the inventory: {gone}: the others shut them out, so that mounts of the"
            " shared folder hang there, while their roles run on; put them back into the file,"
            f" `fab deploy reset --limit {gone}`, then take them out",
        )

    def remember_nodes(self, but: Sequence[str] = ()) -> None:
        """Note the inventory's nodes for `nodes_gone`; a node stays noted until its reset."""
        names = [*(node.name for node in self.inventory.nodes), *self.nodes_gone()]
        atomic_write(
            self._nodes_file,
            json.dumps([name for name in names if name not in but]).encode() + b"\n",
        )

    def forget_nodes(self, names: Sequence[str]) -> None:
        """Forget nodes that were reset."""
        if self._nodes_file.exists():
            self.remember_nodes(but=names)

    @property
    def _nodes_file(self) -> Path:
        return self.folder.path / "nodes.json"


def known_hosts_of(inventory: "Inventory") -> Path:
    """Return the file of a cluster's pinned host keys."""
    return StateFolder.of(inventory.path, inventory.cluster).path / "known_hosts"


def local_cluster(
    inventory: "Inventory", overrides: Sequence[str], services: ServiceManager
) -> ManagedCluster:
    """A cluster of processes on this machine.

    Its commands know the cluster's token, where there is one.
    """
    token = read_token(StateFolder.of(inventory.path, inventory.cluster).path)
    return ManagedCluster(
        inventory, tuple(overrides), lambda: Fleet.here(inventory, token), services
    )


def over_ssh(
    inventory: "Inventory", overrides: Sequence[str], services: ServiceManager
) -> ManagedCluster:
    """A cluster of machines; each is connected to when it is first used."""

    def fleet() -> Fleet:
        pinned = PinnedKeys(cluster.known_hosts)
        through = jump_address(inventory)
        if through is None:
            jump = None
        else:
            jump = NodeConnection(through, pinned)
        nodes = [NodeConnection(address, pinned, jump) for address in addresses(inventory)]
        return Fleet(nodes, inventory.ssh.parallel, jump)

    cluster = ManagedCluster(inventory, tuple(overrides), fleet, services)
    return cluster


ADDRESSES_FILE = "addresses.json"
ADDRESSES_SCHEMA = 1
_MOST_BYTES = 1 << 20
_NOWHERE = IPv4Address("198.18.0.1")
"""The first address of a network for measurements (RFC 2544), which no machine has."""


class TrustedAddresses:
    """The address of each node whose address is a host name, beside its pinned key."""

    def __init__(self, known_hosts: Path) -> None:
        self._known_hosts = known_hosts
        self._path = known_hosts.with_name(ADDRESSES_FILE)

    def load(self) -> dict[str, tuple[str, str]]:
        """Return name and address by node; nothing from a file that is damaged."""
        try:
            content = read_object(self._path, _MOST_BYTES, ADDRESSES_SCHEMA)["nodes"]
            return {
                str(node): (str(entry["name"]), str(IPv4Address(entry["address"])))
                for node, entry in content.items()
            }
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return {}

    def keep(self, inventory: Inventory, hosts: Mapping[str, str | None]) -> None:
        """Note the addresses of these nodes; None drops one. Raises ClusterError."""
        before = self.load()
        names = host_names(inventory)
        trusted = {node: entry for node, entry in before.items() if node in names}
        for node, host in hosts.items():
            trusted.pop(node, None)
            if host is not None:
                trusted[node] = (names[node], host)
        if trusted == before:
            return
        nodes = {node: {"name": name, "address": host} for node, (name, host) in trusted.items()}
        text = json.dumps({"schema": ADDRESSES_SCHEMA, "nodes": nodes}, indent=1)
        atomic_write(self._path, text.encode() + b"\n")

    def pinned(self) -> frozenset[str]:
        """Return the names and addresses that have a pinned key, without ports."""
        try:
            lines = self._known_hosts.read_text(errors="replace").splitlines()
        except OSError:
            return frozenset()
        places = (place for line in lines if line for place in line.split()[0].split(","))
        return frozenset(place.removeprefix("[").partition("]")[0] for place in places)


def host_names(inventory: Inventory) -> dict[str, str]:
    """Return the host name of each node whose address in the inventory is one."""
    return {
        node.name: node.address
        for node in inventory.nodes
        if node.address is not None and not is_address(node.address)
    }


def with_trusted_addresses(inventory: Inventory, known_hosts: Path) -> Inventory:
    """Return the inventory with the addresses that are kept beside the pinned keys.

    A name without one stays a name, which no other node lets in.
    """
    if not inventory.proves_addresses:
        return inventory
    trusted = TrustedAddresses(known_hosts)
    entries = trusted.load()
    pinned = trusted.pinned()
    names = host_names(inventory)
    hosts = dict(inventory.links)
    unproven = set()
    for node in inventory.nodes:
        if node.name in names:
            name, address = entries.get(node.name, ("", ""))
            is_known = name == node.address
            if is_known:
                hosts[node.name] = address
        else:
            is_known = (node.ssh.address or hosts.get(node.name)) in pinned
        if not is_known:
            unproven.add(node.name)
    return addressed(inventory, hosts, unproven)


def resolved_names(inventory: Inventory, nodes: Container[str], machine: Machine) -> dict[str, str]:
    """Return what the network says of the names of `nodes`.

    What can be no address of its node is left out.
    """
    names = {node: name for node, name in host_names(inventory).items() if node in nodes}
    # An unknown name takes seconds.
    with ThreadPoolExecutor(max_workers=16) as pool:
        answers = dict(zip(names, pool.map(machine.resolve, names.values()), strict=True))
    usable = {node: host for node, host in answers.items() if host and _usable(inventory, host)}
    hosts = {**inventory.links, **usable}
    return {
        node: host
        for node, host in usable.items()
        if not any(host == other for name, other in hosts.items() if name != node)
    }


def _usable(inventory: Inventory, host: str) -> bool:
    address = IPv4Address(host)
    if address.is_multicast or address.is_reserved or address.packed[0] == 0:
        return False
    if address.is_loopback and len(inventory.nodes) > 1:
        return False
    return inventory.allow_public or not address.is_global


def address_lines(inventory: Inventory, lost: Container[str]) -> tuple[str, ...]:
    """Return the lines about names and about nodes that the others do not let in. Pure."""
    lines = []
    admitted = {
        node: f"{name} {inventory.links[node]}"
        for node, name in host_names(inventory).items()
        if node in inventory.admitted
    }
    if admitted:
        lines.append(f"names: {', '.join(admitted.values())}")
    lines += [
        f"{node}: looked for at {pair}: if it has another address now, `fab deploy trust` asks for"
        " that"
        for node, pair in admitted.items()
        if node in lost
    ]
    lines += [
        f"{node.name}: the other nodes do not let it in: its pinned key has not answered at its"
        " address; `fab deploy trust` asks for both"
        for node in inventory.nodes
        if node.name in inventory.unproven
    ]
    return tuple(lines)


def as_overrides(inventory: Inventory) -> tuple[str, ...]:
    """Return `KEY=VALUE` that put the trusted addresses in the place of names.

    The node that runs a job asks the network for none; a node that is not proven leads nowhere.
    Raises ClusterError where that is the coordinator's.
    """
    overrides = []
    names = host_names(inventory)
    for index, node in enumerate(inventory.nodes):
        if node.name not in names:
            continue
        host: object = _NOWHERE + index
        if node.name in inventory.admitted:
            host = inventory.links[node.name]
        elif any(entry.role == "coordinator" for entry in node.roles):
            raise ClusterError(
                f"{node.name}: the address of {node.address} is not proven yet: `fab deploy trust`"
                " does that"
            )
        overrides.append(f"nodes.{node.name}.address={host}")
    return tuple(overrides)
