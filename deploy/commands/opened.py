"""One cluster as a command has it open, and the parts of a start that are commands of their own."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.ground.errors import UsageError
from core.logs import say
from deploy.cluster.selection import select_nodes
from deploy.commands.action import end_degraded

if TYPE_CHECKING:
    from core.inventory import Inventory
    from deploy.cluster.cluster import ManagedCluster
    from deploy.cluster.tunnel_keys import TunnelKeys
    from deploy.commands.flags import Names
    from deploy.commands.views import View
    from deploy.converge.deployment import Desired
    from deploy.converge.publication import JobData
    from deploy.jobs.services import JobServices


@dataclass(frozen=True)
class OpenCluster:
    """One cluster for the whole of a command: nodes, services, jobs, data and view.

    `monitor` watches it with a Prometheus of its own. `has_machines`: actions such as `push` mean
    something.
    """

    cluster: "ManagedCluster"
    jobs: "JobServices"
    data: "JobData"
    view: "View"
    desired: "Callable[[], Desired]"
    monitor: "Callable[[OpenCluster], None]"
    has_machines: bool
    keys: "TunnelKeys | None" = None
    """The nodes' public keys of WireGuard; None where there are no machines."""

    @property
    def inventory(self) -> "Inventory":
        """The cluster's inventory."""
        return self.cluster.inventory

    def replace_keys(self, names: "Names") -> None:
        """Let these nodes make new keys of WireGuard. Raises UsageError where none are used."""
        if self.keys is None or not self.inventory.encrypted:
            raise UsageError("--new-keys: only nodes with `transport: wireguard` have keys")
        self.keys.replace(select_nodes(self.inventory, names))

    def for_machines(self, action: str) -> "OpenCluster":
        """This cluster, for an action of machines.

        Raises UsageError where every role is a process of this machine.
        """
        if not self.has_machines:
            raise UsageError(
                f"{self.inventory.path}: connection: local: `{action}` is for machines reached over"
                " SSH; here every role is a process of this machine: name another file with"
                " --inventory, such as one of `fab init --hosts`"
            )
        return self

    def operator(self, action: str) -> "AbstractContextManager[Sequence[str]]":
        """Keep other operators' actions from the nodes meanwhile; gives the jobs that run there.

        Processes of this machine have a supervisor, which takes one command after the other.
        """
        if not self.has_machines:
            pid = self.jobs.running_job()
            return nullcontext(() if pid is None else (f"(fab, pid {pid})",))
        from deploy.converge.coordinator import only_operator

        return only_operator(self.cluster, action)


def run_phases(
    opened: OpenCluster, action: str, limit: "Names", phases: tuple[str, ...], *, with_data: bool
) -> None:
    """A part of a start; the command ends degraded where a node failed."""
    from deploy.converge.deployment import DeploymentRequest, converge

    if with_data:
        publications = opened.data.publications
    else:
        publications = None
    order = DeploymentRequest(action, select_nodes(opened.inventory, limit), phases, publications)
    with opened.operator(action), opened.cluster.fleet() as fleet:
        with opened.view.progress(quiet=False) as progress:
            result = converge(opened.cluster, fleet, opened.desired(), order, progress)
        opened.view.result(result, fleet, idle_said=False)
    if result.recap.failures or not result.whole:
        end_degraded()


def monitor_on_its_node(opened: OpenCluster) -> None:
    """The part of a start that concerns the monitor's node. Raises UsageError without one."""
    from deploy.converge.deployment import MONITOR_PHASES
    from deploy.converge.monitor import MONITOR_PASSWORD
    from deploy.monitor.files import url
    from deploy.monitor.ready import USER

    node = opened.inventory.monitor_node
    if node is None:
        raise UsageError(
            f"{opened.inventory.path}: no node has the role `monitor`: give it to one, or write the"
            " files for a Prometheus that exists with --out DIR"
        )
    run_phases(opened, "monitor", (node,), MONITOR_PHASES, with_data=False)
    say(
        f"Prometheus: {url(opened.inventory)} (user {USER}; root of {node} reads its password in"
        f" {MONITOR_PASSWORD})"
    )


def monitor_here(opened: OpenCluster) -> None:
    """A Prometheus in the foreground."""
    from deploy.monitor import local_prometheus

    state = opened.cluster.folder
    state.create()
    local_prometheus.run(opened.inventory, state.path / "monitor", lambda line: say(line))
