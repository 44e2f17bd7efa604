"""What a job needs of the cluster. Pure."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.inventory import Inventory


def needs_roles(inventory: "Inventory", job: str) -> bool:
    """Whether the job runs on the cluster's roles; training with `mode: single` runs in the coordinator alone."""
    mode: str = inventory.jobs.train.mode
    return job != "train" or mode != "single"
