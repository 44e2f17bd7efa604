"""Where a sweep trains and listens: an executor a worker or for all of them, and its ports."""

import os
import time
from collections.abc import Callable, Sequence

from cluster.pages.files import Placement
from cluster.programs.lead import Lead
from cluster.programs.roster import TOKEN_VARIABLE
from cluster.sweeps.driving.executors import Executor, LocalExecutor, RemoteExecutors
from core.inventory import Inventory
from core.inventory.nodes import CoordinatorPorts, Node, RoleEntry
from core.inventory.templates import free_ports

JOIN_EVERY_SECONDS = 15.0
WHOLE = "cluster"
"""The node of a run over all nodes."""


class Places:
    """The executors of a sweep: here, or on the workers' nodes, whose runners come and go."""

    def __init__(self, inventory: Inventory, placement: Placement, mark: str) -> None:
        """Raises ClusterError where the port of the lead is taken."""
        self.elsewhere = placement == "node" and not inventory.one_host
        self._remote: RemoteExecutors | None = None
        workers = {task.name: task.host for task in inventory.of_role("worker")}
        self.executors: Sequence[Executor]
        if placement == "cluster":
            self.executors = [LocalExecutor(WHOLE, mark, placement)]
            return
        if not self.elsewhere:
            self.executors = [LocalExecutor(name, mark) for name in workers]
            return
        host = inventory.task("coordinator", 0).host
        lead = Lead(host, inventory.ports.programs, os.environ.get(TOKEN_VARIABLE, ""), workers)
        self._remote = RemoteExecutors(lead, list(workers))
        self.executors = self._remote.executors
        self._joined_at = 0.0

    def gather(self, give_up: Callable[[], bool]) -> None:
        """Wait for the nodes."""
        if self._remote is not None:
            self._remote.gather(give_up)
            self._joined_at = time.monotonic()

    def look(self) -> None:
        """Take nodes that came back, now and then."""
        if self._remote is not None and time.monotonic() - self._joined_at >= JOIN_EVERY_SECONDS:
            self._remote.join()
            self._joined_at = time.monotonic()

    def close(self, *, last: bool) -> None:
        """Let go of the nodes; with `last` for good."""
        if self._remote is not None:
            self._remote.close(last)


def beside_the_training(inventory: Inventory) -> Inventory:
    """Return the inventory with other ports for metrics and page, which a training has meanwhile.

    They are the first ports for programs of the coordinator's node; on one host, where clusters
    share them, free ones.
    """
    if inventory.one_host:
        metrics, page = free_ports(2)
    else:
        metrics, page = inventory.ports.of_programs[:2]

    def changed(node: Node) -> Node:
        roles = tuple(
            (
                RoleEntry(
                    coordinator=CoordinatorPorts(
                        port=entry.ports.port, metrics_port=metrics, page_port=page
                    )
                )
                if entry.role == "coordinator"
                else entry
            )
            for entry in node.roles
        )
        return node.model_copy(update={"roles": roles})

    with_other_ports = inventory.model_copy(
        update={"nodes": tuple(changed(node) for node in inventory.nodes)}
    )
    with_other_ports.__dict__.pop("_tasks", None)  # they follow from the nodes
    return with_other_ports
