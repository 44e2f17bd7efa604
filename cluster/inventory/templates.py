"""The inventories that `fab init` writes to start from."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from cluster.errors import UsageError
from cluster.inventory.free_ports import free_ports as find_free_ports
from cluster.inventory.host_ranges import expand_hosts
from cluster.inventory.loading import loads

_HEAD = """\
# {title}
# Every key is explained in docs/inventory.md; any of them can be changed for one call, e.g. --set jobs.train.epochs=3
schema: 1
cluster: {cluster}
connection: {connection}
"""

_JOBS = """
jobs: # run in this order once every role is ready
  pi: # calibrates the workers: how many samples each computes in a second
    samples: {samples}
  train:
    # The recipe gives optimizer, schedule, clipping and regularization: shipped is AdamW with a one-cycle schedule,
    # thesis what the 2019 thesis trained with. A key written here goes before the recipe's.
    recipe: shipped
    data: {{source: null}} # the first of --data, $PSCLUSTER_DATA, ../shared/data, the cache folder, else synthetic
    model: {{name: thesis, n_layers_in_highway: 0, n_stacked_layers: 3, bidirectional: false, hidden: 32}}
    epochs: {epochs}
    batch_size: 100
    micro_batches: auto # one a core of a worker; in sync at least one for each worker
"""

LOCAL_SAMPLES = 100_000_000
LOCAL_EPOCHS = 12
HOSTS_SAMPLES = 1_000_000_000
HOSTS_EPOCHS = 30


def local_inventory(
    workers: int = 2,
    ps: int = 1,
    free_ports: Callable[[int], Sequence[int]] = find_free_ports,
    *,
    cluster: str = "local",
) -> str:
    """Text of an inventory for this machine alone, every role on ports of its own from `free_ports(count)`.

    Raises UsageError when there is no worker or no parameter server, or more than this machine could ever run.
    """
    for count, words in ((workers, "workers"), (ps, "parameter servers")):
        if not 1 <= count <= 64:
            raise UsageError(f"{count} {words}: one machine simulates 1 to 64 - choose another number")
    roles = ["ps"] * ps + ["worker"] * workers + ["coordinator"]
    ports = iter(free_ports(2 * len(roles) + 1))
    lines = [f"      - {role}: {{port: {next(ports)}, metrics_port: {next(ports)}}}" for role in roles]
    lines[-1] = lines[-1].removesuffix("}") + f", page_port: {next(ports)}}}"
    head = _HEAD.format(title="One machine plays the cluster.", cluster=json.dumps(cluster), connection="local")
    nodes = "\nnodes:\n  - name: localhost\n    address: 127.0.0.1\n    roles:\n" + "\n".join(lines) + "\n"
    return _checked(head + nodes + _JOBS.format(samples=LOCAL_SAMPLES, epochs=LOCAL_EPOCHS))


def hosts_inventory(hosts: str, user: str = "pi", *, cluster: str = "cluster") -> str:
    """Text of an inventory for machines reached over SSH, e.g. `hosts="192.168.1.16-31"`.

    The first host gets the storage, the parameter server and the coordinator, and all of them a worker.
    Raises UsageError when `hosts` cannot be read, InventoryError when what it names makes no cluster.
    """
    addresses = expand_hosts(hosts)
    names = _node_names(addresses)
    head = _HEAD.format(
        title=f"{len(addresses)} machines on one network.", cluster=json.dumps(cluster), connection="ssh"
    )
    lines = []
    for position, (name, address) in enumerate(zip(names, addresses, strict=True)):
        roles = "storage, ps, coordinator, worker" if position == 0 else "worker"
        lines.append(f"  - {{name: {name}, address: {address}, roles: [{roles}]}}\n")
    storage = f"\nstorage: {{server: {names[0]}, export: /srv/pscluster, mount: /mnt/pscluster}}\n"
    body = f"ssh: {{user: {json.dumps(user)}}}\n\nnodes:\n{''.join(lines)}{storage}"
    return _checked(head + body + _JOBS.format(samples=HOSTS_SAMPLES, epochs=HOSTS_EPOCHS))


def _checked(text: str) -> str:
    """The text if it is an inventory: names and users come from the command line. Raises InventoryError."""
    loads(text, "fab init", (), path=Path("fab-init"), machine=None)
    return text


def _node_names(addresses: Sequence[str]) -> list[str]:
    """A host name's first part where all of these differ and are names; numbers otherwise."""
    labels = [address.partition(".")[0] for address in addresses]
    if len(set(labels)) == len(labels) and not any(label.isdigit() for label in labels):
        return labels
    digits = max(2, len(str(len(addresses))))
    return [f"node{position:0{digits}d}" for position in range(1, len(addresses) + 1)]
