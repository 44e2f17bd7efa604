"""What keeps the roles and runs the jobs of an inventory, by its `connection`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deploy.cluster.local_services import LocalServices
from deploy.cluster.services import JobServices, Services

if TYPE_CHECKING:
    from cluster.inventory import Inventory


def services_for(inventory: "Inventory", overrides: Sequence[str]) -> Services:
    """The supervisor of a cluster on this machine; machines keep their roles by systemd, see `ssh_cluster`."""
    assert inventory.connection == "local"
    return LocalServices(inventory, overrides)


def job_services_for(inventory: "Inventory", overrides: Sequence[str]) -> JobServices:
    """Where the jobs of an inventory run, by its `connection`."""
    if inventory.connection == "local":
        return LocalServices(inventory, overrides)
    from deploy.cluster.ssh_services import SshServices

    return SshServices(inventory, overrides)
