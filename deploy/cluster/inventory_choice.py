"""The inventory of a command: the flag, then $PSCLUSTER_INVENTORY, then ./inventory.yaml. Its name is said first."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.errors import UsageError
from cluster.logs.terminal import say

if TYPE_CHECKING:
    from cluster.inventory import Inventory

ENVIRONMENT = "PSCLUSTER_INVENTORY"
DEFAULT = "inventory.yaml"


@dataclass(frozen=True)
class Choice:
    """An inventory file and what named it."""

    path: Path
    origin: str


def choose(flag: str | None, environ: Mapping[str, str], folder: Path) -> Choice:
    """The inventory file of this call. Raises UsageError when nothing names one."""
    if flag:
        return Choice(Path(flag), "--inventory")
    if environ.get(ENVIRONMENT):
        return Choice(Path(environ[ENVIRONMENT]), f"${ENVIRONMENT}")
    if (folder / DEFAULT).exists():
        return Choice(Path(DEFAULT), f"./{DEFAULT}")
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

    def open(
        self,
        flag: str | None,
        overrides: Sequence[str],
        *,
        to_stderr: bool = False,
        check_interfaces: bool = True,
    ) -> "Inventory":
        """Load, with the cluster's name and the file printed first (on stdout unless `to_stderr`).

        `check_interfaces=False` holds no address against this machine: a cluster whose cable was pulled can be
        stopped.
        Raises UsageError, also the inventory's own with all of its problems.
        """
        from cluster.inventory import (  # pydantic takes half a second on a Pi: not for `fab --list`
            load,
            located,
            this_machine,
        )

        choice = choose(flag, os.environ, Path.cwd())
        path = choice.path.resolve()
        if self._used not in (None, path):
            raise UsageError(
                f"this call began with {self._used} and names {path} now: give --inventory to every task, "
                "or make two calls"
            )
        self._used = path
        inventory = load(choice.path, overrides, check_interfaces=check_interfaces)
        if not check_interfaces:
            inventory = located(inventory, this_machine())  # the keys are pinned for addresses
        say(f"cluster {inventory.cluster}: {choice.path} (from {choice.origin})", error=to_stderr)
        return inventory
