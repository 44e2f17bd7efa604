"""The nftables table of a node. Pure."""

import hashlib
from typing import TYPE_CHECKING

from deploy.places import CONFIGURATION

if TYPE_CHECKING:
    from cluster.inventory import Inventory

PATH = f"{CONFIGURATION}/firewall.nft"
UNIT = "pscluster-firewall.service"
TABLE = "pscluster"
NFS_PORT = 2049
NODE_EXPORTER_PORT = 9100


def ruleset(inventory: "Inventory") -> str:
    """A table that lets nodes alone reach the cluster's ports, and whoever is in `deployment.allow` the metrics.

    The port of a monitor counts as one of metrics, and so does that of the live page where it listens for others than
    its own node.

    All other ports are left as they are. The table's comment carries a hash of the rules, by which a node tells what
    is loaded.
    """
    metrics, closed = sorted(_metrics_ports(inventory)), sorted(closed_ports(inventory))
    nodes = sorted(set(inventory.hosts.values()))
    readers = [line for line in (_set("readers", inventory.deployment.allow, interval=True),) if line]
    reading = [f"        tcp dport {{ {_list(metrics)} }} ip saddr @readers accept"] if readers else []
    body = "\n".join(
        [
            _set("nodes", nodes, interval=False),
            *readers,
            "    chain input {",
            "        type filter hook input priority -10; policy accept;",
            '        iif "lo" accept',
            f"        tcp dport {{ {_list(closed)} }} ip saddr @nodes accept",
            *reading,
            f"        tcp dport {{ {_list(closed)} }} drop",
            "    }",
        ]
    )
    return (
        f"# Written by pscluster from the inventory of cluster {inventory.cluster}.\n"
        f"table inet {TABLE}\n"
        f"delete table inet {TABLE}\n"
        f"table inet {TABLE} {{\n"
        f'    comment "pscluster {fingerprint(body)}"\n'
        f"{body}\n"
        "}\n"
    )


def closed_ports(inventory: "Inventory") -> frozenset[int]:
    """All that the table is about, on every node the same: nobody but the nodes and the readers reaches them."""
    return frozenset({task.port for task in inventory.tasks()} | {NFS_PORT} | _metrics_ports(inventory))


def _metrics_ports(inventory: "Inventory") -> set[int]:
    tasks = inventory.tasks()
    pages = {task.page_port for task in tasks if task.page_port and inventory.page.listen == "cluster"}
    monitor = {inventory.monitor.port} if inventory.monitor_node is not None else set()
    return {task.metrics_port for task in tasks} | pages | monitor | {NODE_EXPORTER_PORT}


def fingerprint(text: str) -> str:
    """Sixteen hexadecimal digits of SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def loaded_mark(rules: str) -> str:
    """The hash in a ruleset's own comment."""
    return rules.partition('comment "pscluster ')[2].partition('"')[0]


def unit() -> str:
    """Loads the table at boot, before the network is up, and after Debian's own, whose file begins by flushing all."""
    return f"""\
# Written by pscluster.
[Unit]
Description=pscluster: only the cluster's nodes reach the cluster's ports
DefaultDependencies=no
After=local-fs.target nftables.service
Before=network-pre.target shutdown.target
Wants=network-pre.target
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/nft -f {PATH}
ExecReload=/usr/sbin/nft -f {PATH}
ExecStop=-/usr/sbin/nft delete table inet {TABLE}

[Install]
WantedBy=sysinit.target
"""


def _list(ports: list[int]) -> str:
    return ", ".join(str(port) for port in ports)


def _set(name: str, addresses: "tuple[str, ...] | list[str]", *, interval: bool) -> str:
    if not addresses:
        return ""
    # Merged: an address and the network it is in may both be allowed, and nft takes no overlap otherwise.
    flags = " flags interval; auto-merge;" if interval else ""
    return f"    set {name} {{ type ipv4_addr;{flags} elements = {{ {', '.join(addresses)} }}; }}"
