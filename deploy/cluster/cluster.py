"""One cluster as a command sees it. `deploy.commands.opening` makes it, and no command asks for its kind again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.cluster.fleet import Fleet
from deploy.cluster.services import ServiceManager
from deploy.common.state_folder import StateFolder

if TYPE_CHECKING:
    from cluster.inventory import Inventory


@dataclass(frozen=True)
class Cluster:
    """An inventory, the way to its nodes, and what keeps its roles. Making one connects to no node."""

    inventory: "Inventory"
    overrides: tuple[str, ...]
    """`KEY=VALUE` of this call, which `inventory` has already; another process needs them beside the file."""
    connect: Callable[[], Fleet]
    services: ServiceManager

    @property
    def folder(self) -> StateFolder:
        """The cluster's files beside the inventory."""
        return StateFolder.beside(self.inventory.path, self.inventory.cluster)

    @property
    def known_hosts(self) -> Path:
        """The pinned host keys."""
        return known_hosts(self.inventory)

    @property
    def deployments(self) -> Path:
        """Folder of the recaps."""
        return self.folder.path / "deployments"

    def fleet(self) -> Fleet:
        """A connector a node; the caller closes it."""
        return self.connect()


def known_hosts(inventory: "Inventory") -> Path:
    """The file of pinned host keys of an inventory."""
    return StateFolder.beside(inventory.path, inventory.cluster).path / "known_hosts"


def local(inventory: "Inventory", overrides: Sequence[str], services: ServiceManager) -> Cluster:
    """A cluster of processes on this machine."""
    return Cluster(inventory, tuple(overrides), lambda: Fleet.here(inventory), services)


def over_ssh(inventory: "Inventory", overrides: Sequence[str], services: ServiceManager) -> Cluster:
    """A cluster of machines."""
    return Cluster(inventory, tuple(overrides), lambda: Fleet.of(inventory, known_hosts(inventory)), services)
