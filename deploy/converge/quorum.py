"""Whether the nodes that are left make a cluster, and whether the coordinator reaches their roles."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from cluster.errors import ClusterError
from deploy.cluster.cluster import Fleet
from deploy.cluster.selection import kept_tasks
from deploy.converge.apply import StepFailure

if TYPE_CHECKING:
    from cluster.inventory import Inventory


def minimum_workers(inventory: "Inventory") -> int:
    """Workers that must be left: what the inventory says, or half of them, rounded up."""
    configured = inventory.deployment.minimum_workers
    return (len(inventory.of_role("worker")) + 1) // 2 if configured is None else configured


def missing(inventory: "Inventory", lost: Collection[str]) -> str:
    """Why no roles may be started without the nodes `lost`, empty when they may.

    Every parameter server holds a part of the parameters, the coordinator runs the jobs, and without the storage server
    no worker has the windows; of the workers some may be missing.
    """
    reasons = [
        f"{task.name} is on {task.node}"
        for task in inventory.tasks()
        if task.role in ("ps", "coordinator") and task.node in lost
    ]
    storage = inventory.storage
    if storage is not None and storage.server in lost:
        reasons.append(f"{storage.server} is the storage server")
    workers = inventory.of_role("worker")
    left = sum(task.node not in lost for task in workers)
    needed = minimum_workers(inventory)
    if left < needed:
        reasons.append(f"{left} of {len(workers)} workers are left, {needed} are needed (`deployment.minimum_workers`)")
    return "; ".join(reasons)


_PROBE = """\
import socket, sys
from concurrent.futures import ThreadPoolExecutor
def probe(word):
    name, host, port = word.split(",")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        return f"{name} {error}"
print("\\n".join(line for line in ThreadPoolExecutor(16).map(probe, sys.argv[1:]) if line))
"""
_SECONDS = 60.0


def unreachable(inventory: "Inventory", fleet: Fleet, names: Collection[str]) -> list[StepFailure]:
    """The roles on nodes `names` whose TensorFlow port does not answer the coordinator's node."""
    coordinator = inventory.of_role("coordinator")[0].node
    if coordinator not in names:
        return []
    tasks = [task for task in kept_tasks(inventory) if task.node in names]
    words = [f"{task.name},{task.host},{task.port}" for task in tasks]
    node = fleet.nodes[coordinator]
    try:
        # The firewall lets the service account and root through, and not the account that logged in.
        outcome = node.run(["python3", "-", *words], stdin=_PROBE.encode(), deadline_seconds=_SECONDS, root=True)
    except ClusterError as error:
        return [StepFailure(coordinator, "verify", "reach the roles", "", None, (str(error),), "")]
    if not outcome.ok:
        hint = f"`fab deploy ssh --node {coordinator}` looks at it by hand"
        command, code, said = "python3 - ...", outcome.return_code, outcome.last_lines
        return [StepFailure(coordinator, "verify", "reach the roles", command, code, said, hint)]
    of_name = {task.name: task for task in tasks}
    made = []
    for line in outcome.text.splitlines():
        name, _, what = line.partition(" ")
        if name not in of_name:  # a start file of the account printed it
            continue
        task = of_name[name]
        unreached = f"{coordinator} does not reach {name} at {task.address}: {what}"
        hint = "look at the cable, the switch and the node's own firewall"
        made.append(StepFailure(task.node, "verify", "reach the roles", "", None, (unreached,), hint))
    return made
