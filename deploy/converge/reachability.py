"""Whether the coordinator's node reaches every role: what a job needs, whatever each node says of itself."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from cluster.errors import ClusterError
from deploy.cluster.fleet import Fleet
from deploy.converge.apply import StepFailure
from deploy.render.roles import MODULES

if TYPE_CHECKING:
    from cluster.inventory import Inventory

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
    tasks = [task for task in inventory.tasks() if task.role in MODULES and task.node in names]
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
