"""From the flags of a command to its inventory and to what runs it."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from cluster.errors import UsageError
from deploy.cluster.inventory_choice import InventoryOpener
from deploy.cluster.services import JobServices, Services

if TYPE_CHECKING:
    from cluster.inventory import Inventory
    from deploy.cluster.fleet import Fleet
    from deploy.cluster.log_places import LogPlace
    from deploy.cluster.ssh_cluster import SshCluster

OPENER = InventoryOpener()
"""One for the process: several tasks of one call must mean one inventory."""

Names = Sequence[str] | None


def open_cluster(
    inventory: str | None, overrides: Sequence[str], for_programs: bool = False, as_written: bool = False
) -> "tuple[Inventory, JobServices]":
    """The inventory of this call, its name said (on stderr when stdout is for programs), and where its jobs run.

    `as_written` does not hold the addresses against this machine's interfaces.
    """
    from deploy.cluster.connections import job_services_for

    opened = opened_inventory(inventory, overrides, for_programs, as_written)
    return opened, job_services_for(opened, overrides)


def opened_inventory(
    inventory: str | None, overrides: Names, for_programs: bool = False, as_written: bool = False
) -> "Inventory":
    """The inventory of this call, its name said first; the flags as with `open_cluster`."""
    return OPENER.open(inventory, overrides or (), to_stderr=for_programs, check_interfaces=not as_written)


def services_of(inventory: "Inventory", overrides: Names) -> Services:
    """What keeps the roles of a cluster on this machine."""
    from deploy.cluster.connections import services_for

    return services_for(inventory, overrides or ())


def ssh_cluster(inventory: "Inventory", overrides: Names) -> "SshCluster":
    """The operator's end of a cluster of machines."""
    from deploy.cluster.ssh_cluster import SshCluster

    return SshCluster(inventory, overrides or ())


def ssh_only(action: str, inventory: str | None, overrides: Names) -> "SshCluster":
    """The same for an action that only machines have. Raises UsageError for `connection: local`."""
    opened = opened_inventory(inventory, overrides)
    if opened.connection != "ssh":
        raise UsageError(
            f"{opened.path}: connection: {opened.connection}: `{action}` is for machines reached over SSH; here every "
            "role is a process of this machine"
        )
    return ssh_cluster(opened, overrides)


def open_logs(
    inventory: str | None, overrides: Names, for_programs: bool
) -> "tuple[Inventory, list[LogPlace], Callable[[], Fleet]]":
    """The inventory of this call, where its logs are, and how to reach them."""
    from deploy.cluster import log_places
    from deploy.cluster.fleet import Fleet
    from deploy.common.state_folder import StateFolder

    opened = opened_inventory(inventory, overrides, for_programs, as_written=True)
    if opened.connection == "ssh":
        return opened, log_places.of_systemd(opened), ssh_cluster(opened, overrides).fleet
    folder = StateFolder.beside(opened.path, opened.cluster)
    return opened, log_places.of_supervisor(opened, folder), lambda: Fleet.here(opened)


def only_over_ssh(flags: Mapping[str, object]) -> None:
    """Raises UsageError when one of the flags was given, which `connection: local` has no use for."""
    given = [flag for flag, value in flags.items() if value]
    if given:
        raise UsageError(f"{', '.join(given)}: goes with `connection: ssh`")
