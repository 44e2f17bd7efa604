"""From the flags of a command to its cluster. `open_cluster` alone asks for the kind of an inventory's connection."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from cluster.errors import UsageError
from deploy.cluster.inventory_choice import InventoryOpener

if TYPE_CHECKING:
    from cluster.inventory import Inventory
    from deploy.cluster.cluster import Cluster
    from deploy.commands.views import View
    from deploy.converge.deployment import Desired
    from deploy.converge.publication import JobData
    from deploy.jobs.services import JobServices

OPENER = InventoryOpener()
"""One for the process: several tasks of one call must mean one inventory."""

Names = Sequence[str] | None


@dataclass(frozen=True)
class Parts:
    """What one kind of cluster has of its own. `has_machines`: actions such as `push` mean something."""

    cluster: "Cluster"
    jobs: "JobServices"
    data: "JobData"
    view: "Callable[[Opened], View]"
    desired: "Callable[[], Desired]"
    monitor: "Callable[[Opened], None]"
    has_machines: bool


class Opened:
    """One cluster for the whole of a command: nodes and services, their desired state, jobs, data and view."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.cluster = parts.cluster
        self.inventory = parts.cluster.inventory
        self.jobs = parts.jobs
        self.data = parts.data

    @property
    def desired(self) -> "Desired":
        """What the nodes have to be."""
        return self._parts.desired()

    @property
    def view(self) -> "View":
        """How this kind of cluster is shown."""
        return self._parts.view(self)

    def monitor(self) -> None:
        """Watch the cluster with a Prometheus of its own. Raises ClusterError."""
        self._parts.monitor(self)

    def for_machines(self, action: str) -> "Opened":
        """This cluster, for an action of machines. Raises UsageError where every role is a process of this machine."""
        if not self._parts.has_machines:
            raise UsageError(
                f"{self.inventory.path}: connection: local: `{action}` is for machines reached over SSH; here every "
                "role is a process of this machine"
            )
        return self


def open_cluster(
    inventory: str | None, overrides: Names, for_programs: bool = False, as_written: bool = False
) -> Opened:
    """The cluster of this call, its name said first (on stderr when stdout is for programs).

    `as_written` does not hold the addresses against this machine's interfaces. Raises UsageError.
    """
    opened = opened_inventory(inventory, overrides, for_programs, as_written)
    kinds = {"local": _this_machine, "ssh": _machines}
    return Opened(kinds[opened.connection](opened, tuple(overrides or ())))


def opened_inventory(
    inventory: str | None, overrides: Names, for_programs: bool = False, as_written: bool = False
) -> "Inventory":
    """The inventory of this call, its name said first; the flags as with `open_cluster`."""
    return OPENER.open(inventory, overrides or (), to_stderr=for_programs, check_interfaces=not as_written)


def _this_machine(inventory: "Inventory", overrides: tuple[str, ...]) -> Parts:
    from deploy.cluster.cluster import local
    from deploy.commands.monitor import run_here
    from deploy.commands.views import ViewOfThisMachine
    from deploy.converge.publication import DataHere
    from deploy.converge.this_machine import ThisMachine
    from deploy.jobs.local_jobs import ForegroundJobs
    from deploy.supervisor.services import Supervised

    services = Supervised(inventory, overrides)
    cluster = local(inventory, overrides, services)
    return Parts(
        cluster,
        ForegroundJobs(cluster, lambda: services.restart_in_place(())),
        DataHere(inventory),
        ViewOfThisMachine,
        lambda: ThisMachine(inventory, services),
        run_here,
        has_machines=False,
    )


def _machines(inventory: "Inventory", overrides: tuple[str, ...]) -> Parts:
    from deploy.cluster.cluster import over_ssh
    from deploy.commands.monitor import run_on_its_node
    from deploy.commands.views import ViewOfMachines
    from deploy.converge.code import ReleaseChoice
    from deploy.converge.desired import Machines
    from deploy.converge.publication import PublishedData
    from deploy.converge.systemd import Systemd
    from deploy.jobs.attached_job import SubmittedJobs

    if inventory.storage is None:
        raise UsageError(
            f"{inventory.path}: no section `storage`: the nodes share data and runs through it; add "
            "`storage: {server: NODE}` and give that node the role storage"
        )
    cluster = over_ssh(inventory, overrides, Systemd(inventory))
    machines = cache(lambda: Machines(inventory, ReleaseChoice.of_this_checkout()))  # its release takes a second
    view = partial(ViewOfMachines, machines=machines)
    data = PublishedData(inventory)
    return Parts(cluster, SubmittedJobs(cluster, data.bring), data, view, machines, run_on_its_node, has_machines=True)
