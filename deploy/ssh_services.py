"""`connection: ssh`: jobs on the coordinator's node, and the roles that systemd keeps running on all of them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deploy.attached_job import run_attached
from deploy.converge.cluster_view import cluster_status
from deploy.converge.deployment import survey
from deploy.converge.desired import Wish
from deploy.node_jobs import NodeJobs
from deploy.role_status import ClusterStatus
from deploy.ssh_cluster import SshCluster

if TYPE_CHECKING:
    from cluster.inventory import Inventory


class SshServices:
    """`JobServices` over SSH. Nobody is connected to before something is asked."""

    def __init__(self, inventory: "Inventory", overrides: Sequence[str]) -> None:
        """Raises UsageError for an inventory without storage: runs and data go through it."""
        self._cluster = SshCluster(inventory, overrides)

    def status(self) -> ClusterStatus:
        """See `JobServices`."""
        with self._cluster.fleet() as fleet:
            seen = survey(fleet, Wish(self._cluster.inventory, self._cluster.release))
        return cluster_status(self._cluster.inventory, seen)

    def run_job(self, job: str, flags: Sequence[str]) -> int:
        """See `JobServices`. The person may leave it running (130); then it goes on without this command."""
        with self.node_jobs() as jobs:
            return run_attached(jobs, job, flags)

    def running_job(self) -> None:
        """See `JobServices`: no command of this machine runs a job."""

    @contextmanager
    def node_jobs(self) -> Iterator[NodeJobs]:
        """See `JobServices`."""
        inventory = self._cluster.inventory
        (coordinator,) = inventory.of_role("coordinator")
        with self._cluster.fleet() as fleet:
            yield NodeJobs(fleet.nodes[coordinator.node], inventory, self._cluster.overrides)
