"""The connectors of a cluster's nodes, used side by side."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Self, TypeVar

from core.ground.errors import ClusterError
from deploy.cluster.connection import NodeConnection
from deploy.cluster.connector import Connector
from deploy.cluster.local import Local

if TYPE_CHECKING:
    from core.inventory import Inventory

T = TypeVar("T")


class Fleet:
    """One connector a node. Closing it disconnects all of them."""

    def __init__(
        self,
        nodes: Sequence[Connector],
        parallel: int,
        jump: NodeConnection | None = None,
        token: str | None = None,
    ) -> None:
        """`token` is the cluster's, where this machine keeps it."""
        self.nodes: Mapping[str, Connector] = {node.name: node for node in nodes}
        self._parallel = parallel
        self.jump = jump
        self.token = token

    @classmethod
    def here(cls, inventory: "Inventory", token: str | None = None) -> "Fleet":
        """Present every node as this machine, one after the other."""
        return cls([Local(node.name) for node in inventory.nodes], parallel=1, token=token)

    def each(
        self, work: Callable[[Connector], T], names: Sequence[str] | None = None
    ) -> dict[str, T | ClusterError]:
        """Call `work` with each node (of `names`).

        The result of a call that raises ClusterError is the error.
        """
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
                # once and first: threads that open it together get in each other's way
                self.jump.open()
            except ClusterError as error:
                return {node.name: error for node in chosen}
        with ThreadPoolExecutor(
            max_workers=min(self._parallel, len(chosen)), thread_name_prefix="node"
        ) as pool:
            try:
                results = list(pool.map(guarded, chosen))
            except BaseException:
                # Ctrl-C: leaving the pool waits for its threads, and a command may be given an
                # hour.
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
