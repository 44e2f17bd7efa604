"""Whether the nodes that are left make a cluster. Pure."""

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.inventory import Inventory


def minimum_workers(inventory: "Inventory") -> int:
    """Workers that must be left: what the inventory says, or half of them, rounded up."""
    configured = inventory.deployment.minimum_workers
    return (len(inventory.of_role("worker")) + 1) // 2 if configured is None else configured


def missing(inventory: "Inventory", lost: Collection[str]) -> str:
    """Why no roles may be started without the nodes `lost`, empty when they may.

    Every parameter server holds a part of the parameters, the coordinator runs the jobs, and without the storage server
    nobody has the windows; of the workers some may be missing.
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
