"""From the flags of a command to its cluster. `open_cluster` alone asks for the kind of an inventory's connection.

The inventory is that of --inventory, then of $PSCLUSTER_INVENTORY, then ./inventory.yaml. Its name is said first.
"""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.errors import UsageError
from cluster.logs.terminal import say
from deploy.commands.flags import Flags, Names
from deploy.commands.opened import OpenCluster, monitor_here, monitor_on_its_node

if TYPE_CHECKING:
    from cluster.inventory import Inventory

ENVIRONMENT = "PSCLUSTER_INVENTORY"
DEFAULT = "inventory.yaml"


def choose(flag: str | None, environ: Mapping[str, str], folder: Path) -> tuple[Path, str]:
    """The inventory file of this call, and what named it. Raises UsageError when nothing does."""
    if flag:
        return Path(flag), "--inventory"
    if environ.get(ENVIRONMENT):
        return Path(environ[ENVIRONMENT]), f"${ENVIRONMENT}"
    if (folder / DEFAULT).exists():
        return Path(DEFAULT), f"./{DEFAULT}"
    raise UsageError(
        f"no inventory: expected --inventory FILE, ${ENVIRONMENT} or ./{DEFAULT}; "
        "`fab init --local --out inventory.yaml` writes one"
    )


class InventoryOpener:
    """Loads the inventory of each task of one `fab` call, and refuses two different ones.

    `fab deploy stop deploy start --inventory x` reads as one cluster and means two: flags belong to the last task.
    """

    def __init__(self) -> None:
        self._used: Path | None = None

    def open(self, flags: Flags, as_written: bool = False) -> "Inventory":
        """Load, with the cluster's name and the file printed first (on stderr when stdout is for programs).

        `as_written` holds no address against this machine: a cluster whose cable was pulled can be stopped. Raises
        UsageError, also the inventory's own with all of its problems.
        """
        # pydantic takes half a second on a Pi: not for `fab --list`
        from cluster.inventory import load, located, this_machine

        file, origin = choose(flags.inventory, os.environ, Path.cwd())
        path = file.resolve()
        if self._used not in (None, path):
            raise UsageError(
                f"this call began with {self._used} and names {path} now: give --inventory to every task, "
                "or make two calls"
            )
        self._used = path
        inventory = load(file, flags.set_, check_interfaces=not as_written)
        if as_written:
            inventory = located(inventory, this_machine())  # the keys are pinned for addresses
        say(f"cluster {inventory.cluster}: {file} (from {origin})", error=flags.json_)
        return inventory


OPENER = InventoryOpener()
"""One for the process: several tasks of one call must mean one inventory."""


def open_cluster(flags: Flags, as_written: bool = False, loaded: "Inventory | None" = None) -> OpenCluster:
    """The cluster of this call; see `InventoryOpener.open`. Raises UsageError.

    `loaded` is the inventory with the overrides of the flags, where the caller has it.
    """
    opened = loaded or open_inventory(flags, as_written)
    kinds = {"local": _this_machine, "ssh": _machines}
    return kinds[opened.connection](opened, flags.set_)


def open_inventory(flags: Flags, as_written: bool = False) -> "Inventory":
    """The inventory of this call alone; see `InventoryOpener.open`."""
    return OPENER.open(flags, as_written)


def _this_machine(inventory: "Inventory", overrides: Names) -> OpenCluster:
    from deploy.cluster.cluster import local
    from deploy.commands.views import ViewOfThisMachine
    from deploy.converge.publication import DataHere
    from deploy.converge.this_machine import ThisMachine
    from deploy.jobs.services import ForegroundJobs
    from deploy.supervisor.services import Supervised

    services = Supervised(inventory, overrides)
    cluster = local(inventory, overrides, services)
    jobs = ForegroundJobs(cluster, lambda: services.restart_in_place(()))
    view, desired = ViewOfThisMachine(cluster, jobs), cache(lambda: ThisMachine(inventory, services))
    return OpenCluster(cluster, jobs, DataHere(inventory), view, desired, monitor_here, has_machines=False)


def _machines(inventory: "Inventory", overrides: Names) -> OpenCluster:
    from deploy.cluster.cluster import over_ssh
    from deploy.commands.views import ViewOfMachines
    from deploy.converge.code import ReleaseChoice
    from deploy.converge.desired import Machines
    from deploy.converge.extras import NodeExtras
    from deploy.converge.publication import PublishedData
    from deploy.converge.systemd import Systemd
    from deploy.jobs.attached_job import SubmittedJobs

    if inventory.storage is None:
        raise UsageError(
            f"{inventory.path}: no section `storage`: the nodes share data and runs through it; add "
            "`storage: {server: NODE}` and give that node the role storage"
        )
    cluster = over_ssh(inventory, overrides, Systemd(inventory))
    cuda = inventory.jobs.train.device.kind == "gpu"
    machines = cache(lambda: Machines(inventory, ReleaseChoice.of_this_checkout(cuda=cuda)))  # it takes a second
    data = PublishedData(inventory)
    view, jobs = ViewOfMachines(cluster, machines), SubmittedJobs(cluster, data.bring, NodeExtras(inventory).bring)
    return OpenCluster(cluster, jobs, data, view, machines, monitor_on_its_node, has_machines=True)
