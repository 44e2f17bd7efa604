"""The tunnel between the nodes: unit, peers, and the script that sets the interface up. Pure."""

from collections.abc import Mapping
from ipaddress import IPv4Network
from typing import TYPE_CHECKING

from deploy.cluster.places import CONFIGURATION
from deploy.common.command_line import filled

if TYPE_CHECKING:
    from core.inventory import Inventory

INTERFACE = "wg-pscluster"
UNIT = "pscluster-wireguard.service"
FOLDER = f"{CONFIGURATION}/wireguard"
"""Of the private key, root's alone: it is not a file of `CONFIGURATION` itself, all of which a node
shows when it is asked."""
PRIVATE = f"{FOLDER}/private"
PEERS = f"{CONFIGURATION}/wireguard.peers"
APPLY = f"{CONFIGURATION}/wireguard.sh"
IN_THE_KERNEL = "wireguard-tools"
IN_USER_SPACE = "wireguard-go"
"""Debian's packages: the second one where the kernel has no module."""
MODULE = "wireguard_module"
"""A fact: whether the kernel has WireGuard."""


def peers(inventory: "Inventory", node: str, keys: Mapping[str, str]) -> str:
    """Return one node's configuration without its private key.

    Each other node whose key and address are proven is a peer, which may send from its own address
    alone.
    """
    lines = [f"ListenPort = {inventory.wireguard.port}"]
    for other in inventory.nodes:
        key = keys.get(other.name)
        if other.name == node or key is None or other.name not in inventory.admitted:
            continue
        lines += [
            "",
            f"# {other.name}",
            "[Peer]",
            f"PublicKey = {key}",
            f"Endpoint = {inventory.links[other.name]}:{inventory.wireguard.port}",
            f"AllowedIPs = {inventory.hosts[other.name]}/32",
        ]
    return "\n".join(lines) + "\n"


def apply() -> str:
    """Return the script that gives the interface its keys, peers, address and MTU."""
    return filled("render/wireguard.sh", interface=INTERFACE, private=PRIVATE, peers=PEERS)


def unit(inventory: "Inventory", node: str, *, in_kernel: bool) -> str:
    """Return the unit of the interface; in user space a process carries it, and is restarted."""
    prefix = IPv4Network(inventory.wireguard.subnet).prefixlen
    return filled(
        "render/wireguard.service.j2",
        cluster=inventory.cluster,
        interface=INTERFACE,
        script=APPLY,
        address=f"{inventory.hosts[node]}/{prefix}",
        mtu=inventory.wireguard.mtu,
        in_kernel=in_kernel,
    )
