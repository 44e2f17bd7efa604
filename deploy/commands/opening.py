"""Flags of a command lead to its inventory, and that to the open cluster.

`open_cluster` alone asks for the kind of an inventory's connection.

The inventory is that of --inventory, then of $PSCLUSTER_INVENTORY, then ./inventory.yaml; a job
that needs no cluster gets one in the state folder. Its name is said first.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from core.ground.errors import UsageError
from core.ground.files import atomic_write
from core.logs import say
from deploy.commands.flags import ClusterFlags, Names
from deploy.common.state_folder import StateFolder

if TYPE_CHECKING:
    from core.inventory import Inventory
    from deploy.commands.clusters import OpenCluster

ALONE_NAME = "single"
ALONE_ORIGIN = (
    "written for this job, which needs no cluster; --inventory FILE takes the settings of another"
)


def inventory_alone(job: str, overrides: Names, folder: Path) -> Path | None:
    """Write the inventory of a job without roles below `folder`; None where it needs roles.

    Its settings are those of `fab init --local`. Raises InventoryError for overrides that do not
    fit, ClusterError where the state folder cannot be written.
    """
    from core.inventory import this_machine
    from core.inventory.loading import loads
    from core.inventory.templates import local_inventory

    state = StateFolder.of(folder / "inventory.yaml", ALONE_NAME)
    path = state.path / "inventory.yaml"
    text = local_inventory(1, 1, cluster=ALONE_NAME)
    inventory = loads(text, str(path), overrides, path=path, machine=this_machine())
    if inventory.needs_roles(job):
        return None
    state.create()
    atomic_write(path, text.encode())
    return path


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


def open_inventory(
    flags: ClusterFlags, as_written: bool = False, alone: Path | None = None
) -> "Inventory":
    """Load the inventory of this call, and say it (on stderr for programs).

    `alone` is the file of a job that needs no cluster and for which no inventory was named.

    `as_written` holds no address against this machine: a cluster whose cable was pulled can be
    stopped. Raises UsageError, also the inventory's own with all of its problems.
    """
    # pydantic takes half a second on a Pi: not for `fab --list`
    from core.inventory import load, located, this_machine
    from deploy.cluster.cluster import known_hosts_of, with_trusted_addresses

    if alone:
        file = alone
        why = ALONE_ORIGIN
    else:
        file, origin = choose(flags.inventory, os.environ, Path.cwd())
        why = f"from {origin}"
    machine = replace(this_machine(), resolves_nodes=False)
    inventory = load(file, flags.set_, check_interfaces=not as_written, machine=machine)
    if as_written:
        inventory = located(inventory, machine)
    inventory = with_trusted_addresses(inventory, known_hosts_of(inventory))
    say(f"cluster {inventory.cluster}: {file} ({why})", error=flags.for_programs)
    return inventory


def open_cluster(
    flags: ClusterFlags,
    as_written: bool = False,
    loaded: "Inventory | None" = None,
    alone: Path | None = None,
) -> "OpenCluster":
    """The cluster of this call; see `open_inventory`. Raises UsageError.

    `loaded` is the inventory with the overrides of the flags, where the caller has it.
    """
    from deploy.commands.clusters import OpenMachines, OpenProcesses

    inventory = loaded or open_inventory(flags, as_written, alone)
    if inventory.connection == "local":
        return OpenProcesses(inventory, flags.set_)
    return OpenMachines(inventory, flags.set_)
