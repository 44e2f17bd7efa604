"""`connection: ssh`: jobs on the coordinator's node, and the roles that systemd keeps running on all of them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from cluster.errors import ClusterError
from cluster.logs.terminal import say
from deploy.cluster.fleet import Fleet
from deploy.cluster.places import shared_folders
from deploy.cluster.role_status import ClusterStatus
from deploy.cluster.ssh_cluster import SshCluster
from deploy.common.command_line import shell
from deploy.common.waiting import waiting_for
from deploy.converge.apply import apply
from deploy.converge.cluster_view import cluster_status
from deploy.converge.code import COPY_SECONDS, copy_data
from deploy.converge.deployment import survey
from deploy.converge.desired import Wish
from deploy.converge.prepared_data import PreparedData
from deploy.converge.publication import publish_changes
from deploy.jobs.attached_job import SubmittedJobs
from deploy.jobs.node_jobs import NodeJobs

if TYPE_CHECKING:
    from cluster.inventory import Inventory


class SshServices:
    """`JobServices` over SSH. Nobody is connected to before something is asked."""

    def __init__(self, inventory: "Inventory", overrides: Sequence[str]) -> None:
        """Raises UsageError for an inventory without storage: runs and data go through it."""
        self._cluster = cluster = SshCluster(inventory, overrides)
        self._submitted = SubmittedJobs(cluster.fleet, inventory, overrides, cluster.pending_jobs, self._publish_data)

    def status(self) -> ClusterStatus:
        """See `JobServices`."""
        with self._cluster.fleet() as fleet, waiting_for("looking at the nodes"):
            seen = survey(fleet, Wish(self._cluster.inventory, self._cluster.release))
        return cluster_status(self._cluster.inventory, seen)

    def run_job(self, job: str, flags: Sequence[str]) -> int:
        """See `JobServices`. The person may leave it running (130); then it continues without this command."""
        return self._submitted.run(job, flags)

    def run_jobs(self, order: Sequence[str], flags: Sequence[str]) -> int:
        """Jobs one after another, each only when the one before is done; 0, or the first other exit code."""
        return self._submitted.run_in_order(order, flags)

    def running_job(self) -> None:
        """See `JobServices`: no command of this machine runs a job."""

    def node_jobs(self) -> AbstractContextManager[NodeJobs]:
        """See `JobServices`."""
        return self._submitted.on_node()

    def _publish_data(self, fleet: Fleet) -> Sequence[str]:
        with waiting_for("preparing the recordings, if they are not yet") as tell:
            data = self._cluster.data
            if data is not None:
                tell("bringing the recordings to the nodes, where they are not yet")
                self._publish(fleet, data)
        return self._cluster.job_overrides("train")

    def _publish(self, fleet: Fleet, data: PreparedData) -> None:
        """A job may want other windows than the cluster was started with."""
        inventory = self._cluster.inventory
        folders = shared_folders(inventory)
        publisher = folders.server or inventory.of_role("coordinator")[0].node
        node = fleet.nodes[publisher]
        folder = folders.published(data.publication.kind, data.publication.key)
        if not node.run(["test", "-e", f"{folder}/.complete"], root=True).ok:
            apply(node, "publish", publish_changes(data.publication, folders), lambda change, seconds: None)
        copy = copy_data(data.publication, folders.seen("prepared", data.publication.key))
        # A node that cannot be reached now has no worker either; if it comes back, the others have its work.
        copied = fleet.each(lambda node: node.run(shell(copy), root=True, deadline_seconds=COPY_SECONDS))
        for name, result in copied.items():
            if isinstance(result, ClusterError):
                say(f"{name}: without the windows of this job: {result}", error=True)
            elif not result.ok:
                say(f"{name}: without the windows of this job: {' '.join(result.last_lines)}", error=True)
