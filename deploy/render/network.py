"""The network of a node: its nftables table, and the tunnel's unit, peers and script. Pure."""

import hashlib
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network
from typing import TYPE_CHECKING

from deploy.cluster import places
from deploy.cluster.places import (
    CONFIGURATION,
    JOB_ACCOUNT,
    MONITOR_ACCOUNT,
    ROLE_ACCOUNT,
    SERVICE_ACCOUNT,
    account_numbers,
)
from deploy.common.command_line import filled

if TYPE_CHECKING:
    from core.inventory import Inventory


TUNNEL_INTERFACE = "wg-pscluster"
TUNNEL_UNIT = "pscluster-wireguard.service"
TUNNEL_FOLDER = f"{CONFIGURATION}/wireguard"
"""The folder of the private key, root's alone: a node that is asked shows all files of
`CONFIGURATION` itself."""
PRIVATE_KEY = f"{TUNNEL_FOLDER}/private"
PEERS_PATH = f"{CONFIGURATION}/wireguard.peers"
TUNNEL_SCRIPT = f"{CONFIGURATION}/wireguard.sh"
IN_THE_KERNEL = "wireguard-tools"
IN_USER_SPACE = "wireguard-go"
"""Debian's packages: the second one where the kernel has no module."""
TUNNEL_MODULE = "wireguard_module"
"""A fact: whether the kernel has WireGuard."""


def tunnel_peers(inventory: "Inventory", node: str, keys: Mapping[str, str]) -> str:
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


def tunnel_script() -> str:
    """Return the script that gives the interface its keys, peers, address and MTU."""
    return filled(
        "render/wireguard.sh", interface=TUNNEL_INTERFACE, private=PRIVATE_KEY, peers=PEERS_PATH
    )


def tunnel_unit(inventory: "Inventory", node: str, *, in_kernel: bool) -> str:
    """Return the unit of the interface; in user space a process carries it, and is restarted."""
    prefix = IPv4Network(inventory.wireguard.subnet).prefixlen
    return filled(
        "render/wireguard.service.j2",
        cluster=inventory.cluster,
        interface=TUNNEL_INTERFACE,
        script=TUNNEL_SCRIPT,
        address=f"{inventory.hosts[node]}/{prefix}",
        mtu=inventory.wireguard.mtu,
        in_kernel=in_kernel,
    )


RULES_PATH = f"{CONFIGURATION}/firewall.nft"
FIREWALL_UNIT = "pscluster-firewall.service"
TABLE = "pscluster"
OPEN_CONNECTIONS = "open_connections"
"""The set of the addresses and ports with connections, which nft fills itself."""
MOST_CONNECTIONS = 512
"""Connections of one address to one port. The service takes 384 of all phones, which may stand
behind one address; 128 workers on one machine open 128 to a server."""
NFS_PORT = 2049
NODE_EXPORTER_PORT = 9100
_LONGEST_LISTED = 8
"""Ports that follow one another and are written one by one; more are a range."""


def ruleset(inventory: "Inventory", node: str) -> str:
    """Return the table that opens the cluster's ports to its nodes, metrics to readers as well.

    TensorFlow's ports run any graph. They answer only the accounts of roles and jobs and root of a
    node: the output chain checks the account behind each SYN, because the input chain of the other
    node sees an address and no account. It checks the SYN-ACKs of all closed ports too: an answer
    comes from the account of the kind that owns the port, or from root, so that no other account
    can impersonate a process that is down. Other packets pass: a socket that its process has closed
    has no account any more. The forward chain drops what a node forwards, such as packets of
    containers behind its address, because that passes no output chain.

    The coordinator's own port answers its node alone: no other node has to run graphs in the
    process that writes runs. The ports of programs (`ports.programs`) count as TensorFlow's: a
    program of a person starts servers there. They and the coordinator's port are of jobs alone,
    roles do not connect there.

    The service's port answers nodes and `service.allow`. An address opens `MOST_CONNECTIONS` to a
    port; the SYN of one more is dropped, and its system tries again.

    With WireGuard the closed ports answer within the tunnel alone, and its own port the addresses
    that the inventory announces.

    The ports of the monitor and of a live page that other nodes may read count as metrics. Metrics
    and NFS are closed by address alone. All other ports stay as they are. The table's comment holds
    a hash of the rules, which identifies the loaded table.
    """
    metrics, graphs, closed = (
        _written_ports(ports)
        for ports in (
            metrics_ports(inventory),
            graph_ports(inventory),
            closed_ports(inventory, node),
        )
    )
    body = filled(
        "render/firewall.nft.j2",
        places=places,
        nodes=sorted(set(inventory.admitted.values())),
        readers=inventory.deployment.allow,
        uids=account_numbers(inventory),
        of_roles=_written_ports(_ports_of(inventory, "ps", "worker")),
        graphs=graphs,
        answering=[
            (uid, _written_ports(ports)) for uid, ports in _answering(inventory).items() if ports
        ],
        exporter_port=NODE_EXPORTER_PORT if inventory.deployment.node_exporter else None,
        answered=_written_ports(closed_ports(inventory, node) - {NFS_PORT}),
        nfs_port=NFS_PORT if NFS_PORT in closed_ports(inventory, node) else None,
        alone=[
            (inventory.admitted[task.node], task.port)
            for task in inventory.of_role("coordinator")
            if task.node in inventory.admitted
        ],
        closed=closed,
        open_connections=OPEN_CONNECTIONS,
        most_connections=MOST_CONNECTIONS,
        metrics=metrics,
        service_port=inventory.service.port if inventory.service_nodes else None,
        clients=inventory.service.allow,
        tunnel=_tunnel(inventory),
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


def _tunnel(inventory: "Inventory") -> Mapping[str, object]:
    """Return interface, port and ends of the tunnel; empty without one."""
    if not inventory.encrypted:
        return {}
    links = sorted({inventory.links[name] for name in inventory.admitted})
    return {"interface": TUNNEL_INTERFACE, "port": inventory.wireguard.port, "links": links}


def firewall_mark(inventory: "Inventory", node: str) -> str:
    """Return the hash of a node's table, by which the loaded one is known."""
    return loaded_mark(ruleset(inventory, node))


def closed_ports(inventory: "Inventory", node: str) -> frozenset[int]:
    """Return the ports of a node's table: only nodes and readers reach them.

    NFS is closed on the storage server alone: another node's server is its owner's.
    """
    ports = graph_ports(inventory) | metrics_ports(inventory)
    if inventory.service_nodes:
        ports.add(inventory.service.port)
    storage = inventory.storage
    if storage is not None and storage.server == node:
        ports.add(NFS_PORT)
    return frozenset(ports)


def graph_ports(inventory: "Inventory") -> set[int]:
    """The ports that run graphs and programs: only nodes reach them."""
    return {task.port for task in inventory.tasks()} | set(inventory.ports.of_programs)


def metrics_ports(inventory: "Inventory") -> set[int]:
    """The ports that only show something: nodes and readers reach them."""
    tasks = inventory.tasks()
    ports = {task.metrics_port for task in tasks}
    if inventory.page.listen == "cluster":
        ports |= {task.page_port for task in tasks if task.page_port}
    if inventory.monitor_node is not None:
        ports.add(inventory.monitor.port)
    if inventory.service_nodes:
        ports.add(inventory.service.metrics_port)
    if inventory.deployment.node_exporter:
        ports.add(NODE_EXPORTER_PORT)
    return ports


def _answering(inventory: "Inventory") -> dict[int, set[int]]:
    """Return the closed ports that an account may answer from, by its uid.

    NFS is none of them: the kernel answers there.
    """
    open_to_nodes = graph_ports(inventory) | metrics_ports(inventory)
    job = set(inventory.ports.of_programs)
    role: set[int] = set()
    for task in inventory.tasks():
        of_task = {task.port, task.metrics_port}
        if task.role == "coordinator":
            job |= of_task | ({task.page_port or task.port} & open_to_nodes)
        else:
            role |= of_task
    service: set[int] = set()
    if inventory.service_nodes:
        service = {inventory.service.port, inventory.service.metrics_port}
    monitor: set[int] = set()
    if inventory.monitor_node is not None:
        monitor = {inventory.monitor.port}
    kinds = {
        JOB_ACCOUNT: job,
        ROLE_ACCOUNT: role,
        SERVICE_ACCOUNT: service,
        MONITOR_ACCOUNT: monitor,
    }
    return {uid: kinds[name] for name, uid in account_numbers(inventory).items()}


def _ports_of(inventory: "Inventory", *roles: str) -> set[int]:
    return {task.port for task in inventory.tasks() if task.role in roles}


def fingerprint(text: str) -> str:
    """Sixteen hexadecimal digits of SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def loaded_mark(rules: str) -> str:
    """The hash in a ruleset's comment."""
    return rules.partition('comment "pscluster ')[2].partition('"')[0]


def firewall_unit() -> str:
    """Return the unit that loads the table at boot: before the network, after Debian's rules."""
    return filled("render/firewall.service.j2", path=RULES_PATH, table=TABLE)


def ranges(ports: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """The ports in order, as first and last of each run."""
    runs: list[tuple[int, int]] = []
    for port in sorted(ports):
        if runs and port == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], port)
        else:
            runs.append((port, port))
    return tuple(runs)


def _written_ports(ports: Iterable[int]) -> str:
    """Return the ports in order; more than a few in a row become a range of nft."""
    elements: list[str] = []
    for first, last in ranges(ports):
        if last - first >= _LONGEST_LISTED:
            elements.append(f"{first}-{last}")
        else:
            elements += map(str, range(first, last + 1))
    return ", ".join(elements)
