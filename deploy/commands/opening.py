"""From the flags of a command to its cluster.

`open_cluster` alone asks for the kind of an inventory's connection.

The inventory is that of --inventory, then of $PSCLUSTER_INVENTORY, then ./inventory.yaml. Its name
is said first.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from core.ground.errors import UsageError
from core.logs import say
from deploy.commands.alone import ORIGIN
from deploy.commands.flags import ClusterFlags, Names
from deploy.commands.opened import OpenCluster, monitor_here, monitor_on_its_node

if TYPE_CHECKING:
    from core.inventory import Inventory

ENVIRONMENT = "PSCLUSTER_INVENTORY"
DEFAULT = "inventory.yaml"
EXAMPLE_SHA256 = "84c69653b0dc9d8ffbb99c354a8674df804c0527a1b72aba06c78ec09c5462e1"
"""The hash of the shipped `inventory.yaml`; a test compares the two."""


def choose(flag: str | None, environ: Mapping[str, str], folder: Path) -> tuple[Path, str]:
    """The inventory file of this call, and what named it. Raises UsageError when nothing does."""
    if flag == "":  # as `--inventory=$UNSET` is
        raise UsageError("--inventory: expected a file, got an empty name")
    if flag is not None:
        return Path(flag), "--inventory"
    if environ.get(ENVIRONMENT):
        return Path(environ[ENVIRONMENT]), f"${ENVIRONMENT}"
    if (folder / DEFAULT).exists():
        if is_example(folder / DEFAULT):
            example = ", the example that pscluster ships"
        else:
            example = ""
        return Path(DEFAULT), f"./{DEFAULT}{example}"
    raise UsageError(
        f"no inventory: expected --inventory FILE, ${ENVIRONMENT} or ./{DEFAULT}; "
        "`fab init --local --out inventory.yaml` writes one"
    )


def is_example(path: Path) -> bool:
    """Return whether a file is the inventory of Pis that pscluster ships, unchanged.

    No such machines exist.
    """
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == EXAMPLE_SHA256
    except OSError:
        return False


def is_named(flags: ClusterFlags) -> bool:
    """Return whether a flag, a variable or a person's own ./inventory.yaml names an inventory."""
    if flags.inventory is not None or os.environ.get(ENVIRONMENT):
        return True
    return Path(DEFAULT).exists() and not is_example(Path(DEFAULT))


class InventoryOpener:
    """Loads the inventory of each task of one `fab` call, and refuses two different ones.

    `fab deploy stop deploy start --inventory x` reads as one cluster and means two: flags belong to
    the last task.
    """

    def __init__(self) -> None:
        self._used: Path | None = None

    def open(
        self, flags: ClusterFlags, as_written: bool = False, alone: Path | None = None
    ) -> "Inventory":
        """Load it, with the cluster's name and the file printed first (on stderr for programs).

        `alone` is the file of a job that needs no cluster and for which no inventory was named.

        `as_written` holds no address against this machine: a cluster whose cable was pulled can be
        stopped. Raises UsageError, also the inventory's own with all of its problems.
        """
        # pydantic takes half a second on a Pi: not for `fab --list`
        from core.inventory import load, located, this_machine
        from deploy.cluster.cluster import known_hosts_of
        from deploy.cluster.proven import ProvenAddresses, resolved

        if alone:
            file, origin = (alone, ORIGIN)
        else:
            file, origin = choose(flags.inventory, os.environ, Path.cwd())
        path = file.resolve()
        if self._used not in (None, path):
            raise UsageError(
                f"this call began with {self._used} and names {path} now: give --inventory to every"
                " task, or make two calls"
            )
        self._used = path
        machine = replace(this_machine(), resolves_nodes=False)
        inventory = load(file, flags.set_, check_interfaces=not as_written, machine=machine)
        if as_written:
            inventory = located(inventory, machine)
        inventory = resolved(inventory, ProvenAddresses(known_hosts_of(inventory)), machine)
        if alone:
            why = origin
        else:
            why = f"from {origin}"
        say(f"cluster {inventory.cluster}: {file} ({why})", error=flags.for_programs)
        return inventory


OPENER = InventoryOpener()
"""One for the process: several tasks of one call must mean one inventory."""


def open_cluster(
    flags: ClusterFlags,
    as_written: bool = False,
    loaded: "Inventory | None" = None,
    alone: Path | None = None,
) -> OpenCluster:
    """The cluster of this call; see `InventoryOpener.open`. Raises UsageError.

    `loaded` is the inventory with the overrides of the flags, where the caller has it.
    """
    opened = loaded or OPENER.open(flags, as_written, alone)
    kinds = {"local": _this_machine, "ssh": _machines}
    return kinds[opened.connection](opened, flags.set_)


def open_inventory(flags: ClusterFlags, as_written: bool = False) -> "Inventory":
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
    view = ViewOfThisMachine(cluster, jobs)
    desired = cache(lambda: ThisMachine(inventory, services))
    return OpenCluster(
        cluster, jobs, DataHere(inventory), view, desired, monitor_here, has_machines=False
    )


def _machines(inventory: "Inventory", overrides: Names) -> OpenCluster:
    from deploy.cluster.cluster import over_ssh
    from deploy.cluster.tunnel_keys import FILE, TunnelKeys
    from deploy.commands.views import ViewOfMachines
    from deploy.converge.code import NodeExtras, ReleaseChoice
    from deploy.converge.desired import Machines
    from deploy.converge.publication import PublishedData
    from deploy.converge.systemd import Systemd
    from deploy.jobs.attached_job import SubmittedJobs

    if inventory.storage is None:
        raise UsageError(
            f"{inventory.path}: no section `storage`: the nodes share data and runs through it; add"
            " `storage: {server: NODE}` and give that node the role storage"
        )
    cluster = over_ssh(inventory, overrides, Systemd(inventory))
    cuda = inventory.jobs.train.device.kind == "gpu"
    keys = TunnelKeys(cluster.folder.path / FILE)
    machines = cache(
        lambda: Machines(inventory, ReleaseChoice.of_this_checkout(cuda=cuda), keys=keys)
    )  # it takes a second
    data = PublishedData(inventory)
    view = ViewOfMachines(cluster, machines)
    jobs = SubmittedJobs(cluster, data.bring, NodeExtras(inventory).bring)
    return OpenCluster(
        cluster, jobs, data, view, machines, monitor_on_its_node, has_machines=True, keys=keys
    )
