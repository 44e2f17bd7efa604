"""What small inventories are rendered to; `rendered/` beside this file has the texts once read.

`python -m tests.deploy.render.rendered` writes them anew: read the difference before you keep it.
"""

from collections.abc import Mapping
from pathlib import Path

from core.inventory import Inventory
from core.inventory.loading import loads
from deploy.cluster.places import shared_folders
from deploy.render import storage, units
from deploy.render.kubernetes import SERVICE as SERVICE
from deploy.render.kubernetes import manifests
from deploy.render.network import (
    FIREWALL_UNIT,
    TUNNEL_UNIT,
    firewall_unit,
    ruleset,
    tunnel_peers,
    tunnel_script,
    tunnel_unit,
)
from tests.core.inventory.cases import machine, read

FOLDER = Path(__file__).with_name("rendered")
BYTES = {"ps": 101 * 10**6, "worker": 193 * 10**6, "coordinator": 317 * 10**6}
MINIMAL = """\
schema: 1
cluster: small
connection: ssh
nodes:
  - {name: a, address: 10.0.0.1, roles: [ps, coordinator]}
  - {name: b, address: 10.0.0.2, roles: [worker]}
"""
STORED = "storage: {external: 'nas.local:/volume1/x'}\n"
READERS = "deployment: {allow: [10.9.0.0/16, 10.0.0.7]}\n"
SERVING = MINIMAL.replace("roles: [worker]", "roles: [worker, service]")
ALLOWED = "service: {allow: [10.9.0.0/16, 10.0.0.7]}\n"
PLAIN = MINIMAL.replace("roles: [ps", "roles: [storage, ps") + "storage: {server: a}\n"
APART = PLAIN.replace("roles: [storage, ps, coordinator]", "roles: [storage, ps]").replace(
    "roles: [worker]}", "roles: [coordinator]}\n  - {name: c, address: 10.0.0.3, roles: [worker]}"
)
"""The coordinator, which writes runs and the data of apps, is a client of the server."""
ENCRYPTED = (
    f"{PLAIN}transport: wireguard\nwireguard: {{subnet: 10.9.0.0/16, port: 5000, mtu: 1280}}\n"
)
KEYS = {"a": "QQ" * 21 + "Q=", "b": "Qg" * 21 + "Q="}
ODD = """\
schema: 1
cluster: A-b_9
connection: ssh
nodes:
  - name: Node_With-odd_name9
    address: 10.0.0.1
    roles: [storage, {ps: {port: 5000, metrics_port: 5001}}, coordinator, service]
  - name: "0"
    address: 10.0.0.2
    roles: [worker, monitor, {worker: {port: 6000, metrics_port: 6001}}]
storage: {server: Node_With-odd_name9, export: /srv/a~b+c@d.e, mount: /mnt/übung}
"""
FULL = f"""\
{ODD}
page: {{listen: cluster}}
jobs: {{train: {{device: {{kind: gpu}}}}}}
deployment:
  {{allow: [10.9.0.0/16, 10.9.1.7, 172.16.0.1], node_exporter: true, service_uid: 901}}
service:
  allow: [10.1.0.0/16, 10.1.2.3]
  certificate: /etc/har/chain.pem
  key: /etc/har/key.pem
  names: [har.example.org, har]
  model: steps
  threads: 1
  batch_milliseconds: 0.5
"""
IN_KERNEL = "pscluster-wireguard-in-the-kernel.service"
SERVER = "Node_With-odd_name9"


def pods(text: str, *overrides: str) -> Mapping[str, str]:
    """The manifests of an inventory."""
    inventory = loads(text, "small.yaml", overrides, path=Path("small.yaml"), machine=machine())
    return manifests(inventory, BYTES, 1)


def unit_texts(inventory: Inventory, memory: bool = True) -> dict[str, str]:
    """Every unit of an inventory, by the name of its file."""
    tasks = [task for task in inventory.tasks() if task.role in units.MODULES]
    texts = {units.unit_name(task): units.role_unit(inventory, task) for task in tasks}
    texts |= {
        "pscluster.slice": units.slice_unit(memory),
        FIREWALL_UNIT: firewall_unit(),
        units.JOB_UNIT: units.job_unit(inventory),
    }
    if inventory.encrypted:
        node = inventory.nodes[0].name
        texts[TUNNEL_UNIT] = tunnel_unit(inventory, node, in_kernel=False)
        texts[IN_KERNEL] = tunnel_unit(inventory, node, in_kernel=True)
    if inventory.monitor_node is not None:
        texts[units.MONITOR_UNIT] = units.monitor_unit(inventory, memory)
    for node in inventory.service_nodes:
        texts[units.SERVICE_UNIT] = units.service_unit(inventory, node, memory)
    return texts


def shared(inventory: Inventory) -> dict[str, str]:
    """What the server exports, and what each node mounts."""
    folders = shared_folders(inventory)
    lines = [
        line
        for node in inventory.nodes
        for line in storage.fstab_lines(inventory, node.name, folders)
    ]
    return {"exports": storage.exports(inventory, folders), "fstab": "\n".join(lines)}


def of_machines(inventory: Inventory, memory: bool) -> dict[str, str]:
    """The files of an inventory's two nodes, the first of which is the server."""
    server, other = (node.name for node in inventory.nodes)
    return {
        **unit_texts(inventory, memory),
        "job-of-others.service": units.job_unit(inventory, coordinates=False),
        "role-of-systemd-254.service": units.role_unit(inventory, inventory.task("ps", 0), 254),
        "addresses.conf": units.addresses_drop_in(inventory),
        "server.nft": ruleset(inventory, server),
        "other.nft": ruleset(inventory, other),
        **shared(inventory),
    }


def of_encrypted(inventory: Inventory) -> dict[str, str]:
    """What a tunnel makes different, on the first of two nodes."""
    node = inventory.nodes[0].name
    every = unit_texts(inventory)
    return {
        **{name: every[name] for name in (TUNNEL_UNIT, IN_KERNEL, "pscluster-ps-0.service")},
        "peers": tunnel_peers(inventory, node, KEYS),
        "apply.sh": tunnel_script(),
        "server.nft": ruleset(inventory, node),
        **shared(inventory),
    }


def texts() -> dict[str, str]:
    """All of them by the path below `FOLDER`."""
    monitored = read(ODD, ["service.tls=false"])
    of_inventory = {
        "plain": of_machines(read(PLAIN), memory=False),
        "full": of_machines(read(FULL), memory=True),
        "external": shared(read(MINIMAL + STORED)),
        "apart": shared(read(APART)),
        "encrypted": of_encrypted(read(ENCRYPTED)),
        "without-limits": {
            units.MONITOR_UNIT: units.monitor_unit(monitored, memory_controller=False),
            units.SERVICE_UNIT: units.service_unit(monitored, SERVER, memory_controller=False),
        },
        "with-tls": {
            units.SERVICE_UNIT: units.service_unit(read(ODD), SERVER, memory_controller=True)
        },
        "pods": pods(MINIMAL),
        "pods-read-by-others": {
            name: text
            for name, text in pods(MINIMAL + READERS + STORED).items()
            if name in ("network-policies.yaml", "volumes.yaml")
        },
        "pods-that-serve": {SERVICE: pods(SERVING, "service.tls=false")[SERVICE]},
        "pods-that-serve-others": {
            SERVICE: pods(
                SERVING + ALLOWED + STORED,
                "service.names=[har.example.org]",
                "service.model=steps",
                "service.memory_megabytes=512",
            )[SERVICE]
        },
    }
    return {
        f"{folder}/{name}": text.rstrip("\n") + "\n"
        for folder, files in of_inventory.items()
        for name, text in files.items()
    }


if __name__ == "__main__":
    for name, text in texts().items():
        (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / name).write_text(text, encoding="utf-8")
