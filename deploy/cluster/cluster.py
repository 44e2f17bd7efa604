"""One cluster as a command sees it: its inventory, its services, and its nodes side by side.

`deploy.commands.opening` makes it, and no command asks for its kind again.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from cluster.atomic_write import atomic_write
from cluster.control.token import VARIABLE, read_token
from cluster.errors import ClusterError
from deploy.cluster.connection import NodeConnection
from deploy.cluster.connector import Connector
from deploy.cluster.local import Local
from deploy.cluster.login import PinnedKeys, addresses, jump_address
from deploy.cluster.services import ServiceManager
from deploy.common.state_folder import StateFolder

if TYPE_CHECKING:
    from cluster.inventory import Inventory


T = TypeVar("T")


class Fleet:
    """One connector a node. Closing it disconnects all of them."""

    def __init__(self, nodes: Sequence[Connector], parallel: int, jump: NodeConnection | None = None) -> None:
        self.nodes: Mapping[str, Connector] = {node.name: node for node in nodes}
        self._parallel = parallel
        self.jump = jump

    @classmethod
    def here(cls, inventory: "Inventory", environment: Mapping[str, str] | None = None) -> "Fleet":
        """Every node of an inventory as this machine, one after another; `environment` adds variables to ours."""
        return cls([Local(node.name, environment) for node in inventory.nodes], parallel=1)

    def each(self, work: Callable[[Connector], T], names: Sequence[str] | None = None) -> dict[str, T | ClusterError]:
        """Call `work` with each node (of `names`); the result of a call that raises ClusterError is the error."""
        chosen = [self.nodes[name] for name in (self.nodes if names is None else names)]
        if not chosen:
            return {}

        def guarded(node: Connector) -> T | ClusterError:
            try:
                return work(node)
            except ClusterError as error:
                return error

        if self._parallel == 1:  # in this thread, which Ctrl-C interrupts at once
            return {node.name: guarded(node) for node in chosen}
        if self.jump is not None:
            try:
                self.jump.open()  # once and first: threads that open it together get in each other's way
            except ClusterError as error:
                return {node.name: error for node in chosen}
        with ThreadPoolExecutor(max_workers=min(self._parallel, len(chosen)), thread_name_prefix="node") as pool:
            try:
                results = list(pool.map(guarded, chosen))
            except BaseException:
                # Ctrl-C: leaving the pool waits for its threads, and a command may be given an hour.
                for node in chosen:
                    node.hang_up()
                raise
        return {node.name: result for node, result in zip(chosen, results, strict=True)}

    def close(self) -> None:
        """Disconnect all of them."""
        for node in self.nodes.values():
            node.close()
        if self.jump is not None:
            self.jump.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Cluster:
    """An inventory, the way to its nodes, and what keeps its roles. Making one connects to no node."""

    inventory: "Inventory"
    overrides: tuple[str, ...]
    """`KEY=VALUE` of this call, which `inventory` has already; another process needs them beside the file."""
    fleet: Callable[[], Fleet]
    """Makes a connector a node; the caller closes them."""
    services: ServiceManager

    @property
    def folder(self) -> StateFolder:
        """The cluster's files beside the inventory."""
        return StateFolder.beside(self.inventory.path, self.inventory.cluster)

    @property
    def known_hosts(self) -> Path:
        """The pinned host keys."""
        return self.folder.path / "known_hosts"

    @property
    def deployments(self) -> Path:
        """Folder of the recaps."""
        return self.folder.path / "deployments"

    def nodes_gone(self) -> tuple[str, ...]:
        """Nodes that a deployment put roles on and that the inventory does not have any more."""
        try:
            known = json.loads(self._nodes_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return ()
        here = {node.name for node in self.inventory.nodes}
        return tuple(name for name in known if name not in here)

    def remember_nodes(self, but: Sequence[str] = ()) -> None:
        """Note the inventory's nodes for `nodes_gone`; those that are gone stay noted until their reset."""
        names = [*(node.name for node in self.inventory.nodes), *self.nodes_gone()]
        atomic_write(self._nodes_file, json.dumps([name for name in names if name not in but]).encode() + b"\n")

    def forget_nodes(self, names: Sequence[str]) -> None:
        """These nodes were reset."""
        if self._nodes_file.exists():
            self.remember_nodes(but=names)

    @property
    def _nodes_file(self) -> Path:
        return self.folder.path / "nodes.json"


def local(inventory: "Inventory", overrides: Sequence[str], services: ServiceManager) -> Cluster:
    """A cluster of processes on this machine. Its commands know the cluster's token, where there is one."""
    token = read_token(StateFolder.beside(inventory.path, inventory.cluster).path)
    environment = {} if token is None else {VARIABLE: token}
    return Cluster(inventory, tuple(overrides), lambda: Fleet.here(inventory, environment), services)


def over_ssh(inventory: "Inventory", overrides: Sequence[str], services: ServiceManager) -> Cluster:
    """A cluster of machines; each is connected to when it is first used."""

    def fleet() -> Fleet:
        pinned = PinnedKeys(cluster.known_hosts)
        through = jump_address(inventory)
        jump = None if through is None else NodeConnection(through, pinned)
        nodes = [NodeConnection(address, pinned, jump) for address in addresses(inventory)]
        return Fleet(nodes, inventory.ssh.parallel, jump)

    cluster = Cluster(inventory, tuple(overrides), fleet, services)
    return cluster
