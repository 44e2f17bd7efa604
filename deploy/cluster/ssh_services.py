"""`connection: ssh`: jobs on the coordinator's node, and the roles that systemd keeps running on all of them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cluster.errors import ClusterError, ExitCode
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
from deploy.converge.publication import publish_changes
from deploy.jobs.attached_job import reusable, run_attached, run_in_order
from deploy.jobs.node_jobs import NodeJobs
from deploy.jobs.prepared_data import PreparedData
from deploy.jobs.request import needs_data

if TYPE_CHECKING:
    from cluster.inventory import Inventory


class SshServices:
    """`JobServices` over SSH. Nobody is connected to before something is asked."""

    def __init__(self, inventory: "Inventory", overrides: Sequence[str]) -> None:
        """Raises UsageError for an inventory without storage: runs and data go through it."""
        self._cluster = SshCluster(inventory, overrides)

    def status(self) -> ClusterStatus:
        """See `JobServices`."""
        with self._cluster.fleet() as fleet, waiting_for("looking at the nodes"):
            seen = survey(fleet, Wish(self._cluster.inventory, self._cluster.release))
        return cluster_status(self._cluster.inventory, seen)

    def run_job(self, job: str, flags: Sequence[str]) -> int:
        """See `JobServices`. The person may leave it running (130); then it goes on without this command."""
        with self._cluster.fleet() as fleet:
            if needs_data(job):
                self._publish_data(fleet)
            return run_attached(self._jobs(fleet, self._cluster.job_overrides(job)), job, flags)

    def run_jobs(self, order: Sequence[str], flags: Sequence[str]) -> int:
        """Jobs one after another, each only when the one before is done; 0, or the first other exit code.

        They follow one another on the coordinator's node: also when this command has gone (130). What is left to submit
        is noted until all are; those of them that an earlier call submitted are not submitted again.
        """
        pending = self._cluster.pending_jobs

        def noted(ids: Sequence[str]) -> None:
            if len(ids) < len(order):
                pending.note(ids)
            else:
                pending.forget()

        if not order:
            pending.forget()
            return ExitCode.DONE
        with self._cluster.fleet() as fleet:
            if any(map(needs_data, order)):
                self._publish_data(fleet)
            jobs = self._jobs(fleet, ())
            submitted = pending.submitted
            begun = reusable(submitted, order, jobs.records()) if submitted else ()
            if begun:
                noted(begun)
            with_overrides = [(job, self._cluster.job_overrides(job)) for job in order]
            return run_in_order(jobs, with_overrides, flags, begun, noted)

    def running_job(self) -> None:
        """See `JobServices`: no command of this machine runs a job."""

    @contextmanager
    def node_jobs(self) -> Iterator[NodeJobs]:
        """See `JobServices`."""
        with self._cluster.fleet() as fleet:
            yield self._jobs(fleet, ())

    def _jobs(self, fleet: Fleet, more: Sequence[str]) -> NodeJobs:
        inventory = self._cluster.inventory
        (coordinator,) = inventory.of_role("coordinator")
        return NodeJobs(fleet.nodes[coordinator.node], inventory, (*self._cluster.overrides, *more))

    def _publish_data(self, fleet: Fleet) -> None:
        with waiting_for("preparing the recordings, if they are not yet") as tell:
            data = self._cluster.data
            if data is not None:
                tell("bringing the recordings to the nodes, where they are not yet")
                self._publish(fleet, data)

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
