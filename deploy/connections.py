"""What keeps the roles of an inventory running, by its `connection`. For `local` it is a supervisor of ours."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cluster.errors import UsageError
from deploy.local_services import LocalServices
from deploy.services import JobServices, Services

if TYPE_CHECKING:
    from cluster.inventory import Inventory


def services_for(inventory: "Inventory", overrides: Sequence[str]) -> Services:
    """The service manager behind an inventory's `connection`. Raises UsageError for one this version lacks."""
    if inventory.connection != "local":
        raise UsageError(
            f"{inventory.path}: connection: {inventory.connection}: deployment over SSH is not in this version yet; "
            "`fab init --local --out local.yaml` writes a cluster that runs on this machine"
        )
    return LocalServices(inventory, overrides)


def job_services_for(inventory: "Inventory", overrides: Sequence[str]) -> JobServices:
    """Where the jobs of an inventory run, by its `connection`."""
    if inventory.connection == "local":
        return LocalServices(inventory, overrides)
    from deploy.ssh_services import SshServices

    return SshServices(inventory, overrides)
