"""One cluster as a command has it open, and the parts of a start that are commands of their own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from invoke.exceptions import Exit

from cluster.errors import ExitCode, UsageError
from cluster.logs.terminal import say
from deploy.cluster.selection import select_nodes

if TYPE_CHECKING:
    from cluster.inventory import Inventory
    from deploy.cluster.cluster import Cluster
    from deploy.commands.flags import Names
    from deploy.commands.views import View
    from deploy.converge.deployment import Desired
    from deploy.converge.publication import JobData
    from deploy.jobs.services import JobServices


@dataclass(frozen=True)
class OpenCluster:
    """One cluster for the whole of a command: nodes and services, jobs, data, view, and what its nodes have to be.

    `monitor` watches it with a Prometheus of its own. `has_machines`: actions such as `push` mean something.
    """

    cluster: "Cluster"
    jobs: "JobServices"
    data: "JobData"
    view: "View"
    desired: "Callable[[], Desired]"
    monitor: "Callable[[OpenCluster], None]"
    has_machines: bool

    @property
    def inventory(self) -> "Inventory":
        """The cluster's inventory."""
        return self.cluster.inventory

    def for_machines(self, action: str) -> "OpenCluster":
        """This cluster, for an action of machines. Raises UsageError where every role is a process of this machine."""
        if not self.has_machines:
            raise UsageError(
                f"{self.inventory.path}: connection: local: `{action}` is for machines reached over SSH; here every "
                "role is a process of this machine"
            )
        return self


def run_phases(opened: OpenCluster, action: str, limit: "Names", phases: tuple[str, ...], *, with_data: bool) -> None:
    """A part of a start; the command ends degraded where a node failed."""
    from deploy.converge.deployment import Order, converge

    publications = opened.data.publications if with_data else None
    order = Order(action, select_nodes(opened.inventory, limit), phases, publications)
    with opened.cluster.fleet() as fleet:
        with opened.view.progress(quiet=False) as progress:
            result = converge(opened.cluster, fleet, opened.desired(), order, progress)
        opened.view.result(result, fleet, idle_said=False)
    if result.recap.failures or not result.whole:
        raise Exit(None, ExitCode.DEGRADED)


def monitor_on_its_node(opened: OpenCluster) -> None:
    """The part of a start that concerns the monitor's node. Raises UsageError without one."""
    from deploy.converge.deployment import MONITOR_PHASES
    from deploy.monitor.files import url

    node = opened.inventory.monitor_node
    if node is None:
        raise UsageError(
            f"{opened.inventory.path}: no node has the role `monitor`: give it to one, or write the files for a "
            "Prometheus that exists with --out DIR"
        )
    run_phases(opened, "monitor", (node,), MONITOR_PHASES, with_data=False)
    say(f"Prometheus: {url(opened.inventory)}")


def monitor_here(opened: OpenCluster) -> None:
    """A Prometheus in the foreground."""
    from deploy.monitor import local_prometheus

    state = opened.cluster.folder
    state.create()
    local_prometheus.run(opened.inventory, state.path / "monitor", lambda line: say(line))
