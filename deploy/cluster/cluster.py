"""One cluster as a command sees it. `deploy.commands.opening` makes it, and no command asks for its kind again."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.atomic_write import atomic_write
from cluster.control.token import VARIABLE, read_token
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

    def nodes_gone(self) -> tuple[str, ...]:
        """Nodes that a deployment put roles on and that the inventory does not have any more."""
        try:
            known = json.loads(self._nodes_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return ()
        here = {node.name for node in self.inventory.nodes}
        return tuple(name for name in known if name not in here)

    def remember_nodes(self) -> None:
        """Note the inventory's nodes for `nodes_gone`; those that are gone stay noted until their reset."""
        names = [*(node.name for node in self.inventory.nodes), *self.nodes_gone()]
        atomic_write(self._nodes_file, json.dumps(names).encode() + b"\n")

    def forget_nodes(self, names: Sequence[str]) -> None:
        """These nodes were reset."""
        left = [*(node.name for node in self.inventory.nodes), *self.nodes_gone()]
        if self._nodes_file.exists():
            atomic_write(self._nodes_file, json.dumps([name for name in left if name not in names]).encode() + b"\n")

    @property
    def _nodes_file(self) -> Path:
        return self.folder.path / "nodes.json"


def known_hosts(inventory: "Inventory") -> Path:
    """The file of pinned host keys of an inventory."""
    return StateFolder.beside(inventory.path, inventory.cluster).path / "known_hosts"


def local(inventory: "Inventory", overrides: Sequence[str], services: ServiceManager) -> Cluster:
    """A cluster of processes on this machine. Its commands know the cluster's token, where there is one."""
    token = read_token(StateFolder.beside(inventory.path, inventory.cluster).path)
    environment = {} if token is None else {VARIABLE: token}
    return Cluster(inventory, tuple(overrides), lambda: Fleet.here(inventory, environment), services)


def over_ssh(inventory: "Inventory", overrides: Sequence[str], services: ServiceManager) -> Cluster:
    """A cluster of machines."""
    return Cluster(inventory, tuple(overrides), lambda: Fleet.of(inventory, known_hosts(inventory)), services)
