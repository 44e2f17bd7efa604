"""One cluster as a command sees it: its inventory, its services, and its nodes side by side.

`deploy.commands.opening` makes it, and no command asks for its kind again.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core.control.own_state import read_token
from core.ground.files import atomic_write, read_json
from deploy.cluster.connection import NodeConnection
from deploy.cluster.fleet import Fleet
from deploy.cluster.login import PinnedKeys, addresses, jump_address
from deploy.cluster.services import ServiceManager
from deploy.common.state_folder import StateFolder

if TYPE_CHECKING:
    from core.inventory import Inventory


@dataclass(frozen=True)
class ManagedCluster:
    """An inventory, the way to its nodes, and what keeps its roles.

    Making one connects to no node.
    """

    inventory: "Inventory"
    overrides: tuple[str, ...]
    """`KEY=VALUE` of this call, which `inventory` has already; another process needs them beside
    the file."""
    fleet: Callable[[], Fleet]
    """Makes a connector a node; the caller closes them."""
    services: ServiceManager

    @property
    def folder(self) -> StateFolder:
        """The cluster's files on this machine."""
        return StateFolder.of(self.inventory.path, self.inventory.cluster)

    @property
    def known_hosts(self) -> Path:
        """The pinned host keys."""
        return known_hosts_of(self.inventory)

    @property
    def deployments(self) -> Path:
        """Folder of the recaps."""
        return self.folder.path / "deployments"

    def nodes_gone(self) -> tuple[str, ...]:
        """Nodes that a deployment put roles on and that the inventory does not have any more."""
        try:
            remembered = read_json(self._nodes_file)
        except (OSError, ValueError):
            return ()
        if not isinstance(remembered, list):
            return ()
        names = {node.name for node in self.inventory.nodes}
        return tuple(name for name in remembered if isinstance(name, str) and name not in names)

    @property
    def lines_of_nodes_gone(self) -> tuple[str, ...]:
        """A line about nodes that were removed before their reset, or none."""
        gone = ",".join(self.nodes_gone())
        if not gone:
            return ()
        return (
            f"no longer in the inventory: {gone}: the others shut them out, so that mounts of the"
            " shared folder hang there, while their roles run on; put them back into the file,"
            f" `fab deploy reset --limit {gone}`, then take them out",
        )

    def remember_nodes(self, but: Sequence[str] = ()) -> None:
        """Note the inventory's nodes for `nodes_gone`; a node stays noted until its reset."""
        names = [*(node.name for node in self.inventory.nodes), *self.nodes_gone()]
        atomic_write(
            self._nodes_file,
            json.dumps([name for name in names if name not in but]).encode() + b"\n",
        )

    def forget_nodes(self, names: Sequence[str]) -> None:
        """Forget nodes that were reset."""
        if self._nodes_file.exists():
            self.remember_nodes(but=names)

    @property
    def _nodes_file(self) -> Path:
        return self.folder.path / "nodes.json"


def known_hosts_of(inventory: "Inventory") -> Path:
    """Return the file of a cluster's pinned host keys."""
    return StateFolder.of(inventory.path, inventory.cluster).path / "known_hosts"


def local(
    inventory: "Inventory", overrides: Sequence[str], services: ServiceManager
) -> ManagedCluster:
    """A cluster of processes on this machine.

    Its commands know the cluster's token, where there is one.
    """
    token = read_token(StateFolder.of(inventory.path, inventory.cluster).path)
    return ManagedCluster(
        inventory, tuple(overrides), lambda: Fleet.here(inventory, token), services
    )


def over_ssh(
    inventory: "Inventory", overrides: Sequence[str], services: ServiceManager
) -> ManagedCluster:
    """A cluster of machines; each is connected to when it is first used."""

    def fleet() -> Fleet:
        pinned = PinnedKeys(cluster.known_hosts)
        through = jump_address(inventory)
        if through is None:
            jump = None
        else:
            jump = NodeConnection(through, pinned)
        nodes = [NodeConnection(address, pinned, jump) for address in addresses(inventory)]
        return Fleet(nodes, inventory.ssh.parallel, jump)

    cluster = ManagedCluster(inventory, tuple(overrides), fleet, services)
    return cluster
