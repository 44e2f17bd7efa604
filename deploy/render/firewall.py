"""The nftables table of a node. Pure."""

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from deploy.cluster.places import CONFIGURATION
from deploy.common.texts import filled

if TYPE_CHECKING:
    from cluster.inventory import Inventory

PATH = f"{CONFIGURATION}/firewall.nft"
UNIT = "pscluster-firewall.service"
TABLE = "pscluster"
NFS_PORT = 2049
NODE_EXPORTER_PORT = 9100
_LONGEST_LISTED = 8
"""Ports that follow one another and are written one by one; more are a range."""


def ruleset(inventory: "Inventory") -> str:
    """The table that opens the cluster's ports to its nodes alone, and the metrics to `deployment.allow` as well.

    TensorFlow's ports run any graph. They answer only the service account and root of a node: the output chain checks
    the account behind each SYN, because the input chain of the other node sees an address and no account. It checks
    the SYN-ACKs too, so that no other account can impersonate a role that is down. Other packets pass: a socket that
    its process has closed has no account any more. The forward chain drops what a node forwards, such as packets of
    containers behind its address, because that passes no output chain.

    The ports of programs (`ports.programs`) count as TensorFlow's: a program of a person starts servers there.

    The service's port answers nodes and `service.allow`.

    The ports of the monitor and of a live page that other nodes may read count as metrics. Metrics and NFS are closed
    by address alone. All other ports stay as they are. The table's comment holds a hash of the rules, which identifies
    the loaded table.
    """
    metrics, graphs, closed = (
        _list(ports) for ports in (metrics_ports(inventory), graph_ports(inventory), closed_ports(inventory))
    )
    body = filled(
        "render/firewall.nft.j2",
        nodes=sorted(set(inventory.hosts.values())),
        readers=inventory.deployment.allow,
        service_uid=inventory.deployment.service_uid,
        graphs=graphs,
        closed=closed,
        metrics=metrics,
        service_port=inventory.service.port if inventory.service_nodes else None,
        clients=inventory.service.allow,
    ).rstrip("\n")
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
    """The ports of the table, the same on every node: only nodes and readers reach them."""
    service = {inventory.service.port} if inventory.service_nodes else set()
    return frozenset(graph_ports(inventory) | {NFS_PORT} | metrics_ports(inventory) | service)


def graph_ports(inventory: "Inventory") -> set[int]:
    """The ports that run graphs and programs: only nodes reach them."""
    return {task.port for task in inventory.tasks()} | set(inventory.ports.of_programs)


def metrics_ports(inventory: "Inventory") -> set[int]:
    """The ports that only show something: nodes and readers reach them."""
    tasks = inventory.tasks()
    pages = {task.page_port for task in tasks if task.page_port and inventory.page.listen == "cluster"}
    monitor = {inventory.monitor.port} if inventory.monitor_node is not None else set()
    service = {inventory.service.metrics_port} if inventory.service_nodes else set()
    return {task.metrics_port for task in tasks} | pages | monitor | service | {NODE_EXPORTER_PORT}


def fingerprint(text: str) -> str:
    """Sixteen hexadecimal digits of SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def loaded_mark(rules: str) -> str:
    """The hash in a ruleset's comment."""
    return rules.partition('comment "pscluster ')[2].partition('"')[0]


def unit() -> str:
    """The unit that loads the table at boot: before the network, and after Debian's own rules, which flush all."""
    return filled("render/firewall.service.j2", path=PATH, table=TABLE)


def _list(ports: Iterable[int]) -> str:
    """The ports in order; three and more that follow one another as a range, which nft takes in a set."""
    runs: list[list[int]] = []
    for port in sorted(ports):
        if runs and port == runs[-1][-1] + 1:
            runs[-1].append(port)
        else:
            runs.append([port])
    parts = [[f"{run[0]}-{run[-1]}"] if len(run) > _LONGEST_LISTED else map(str, run) for run in runs]
    return ", ".join(part for run in parts for part in run)
