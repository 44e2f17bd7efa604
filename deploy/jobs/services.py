"""Where the jobs of a cluster run: `LocalJobs` in the foreground, `SshJobs` on the coordinator's node."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from deploy.cluster.cluster import Cluster
from deploy.converge.publication import Publication
from deploy.jobs.attached_job import PendingJobs

if TYPE_CHECKING:
    from deploy.jobs.node_jobs import NodeJobs


class JobServices(Protocol):
    """The jobs of one cluster."""

    @property
    def pending(self) -> PendingJobs:
        """The note of the jobs that a start still has to run."""

    def publications(self) -> Sequence[Publication]:
        """The windows that the nodes need for the inventory's jobs, prepared now. Raises ClusterError."""

    def refuse_missing_data(self) -> None:
        """Raise UsageError where a job's recordings are missing and `publications` does not look for them."""

    def run_job(self, job: str, flags: Sequence[str]) -> int:
        """Run one job to its end, with these flags of `python -m cluster`; its exit code.

        A coordinator that is killed, or that loses a parameter server, comes back with its roles. Raises ClusterError
        when another job runs on the cluster, or the roles do not come back.
        """

    def run_jobs(self, order: Sequence[str], flags: Sequence[str]) -> int:
        """Run jobs in their order, each once the one before is done; 0, or the first other exit code."""

    def running_job(self) -> int | None:
        """Pid of the command of this machine that runs a job on this cluster, None without one."""

    def node_jobs(self) -> "AbstractContextManager[NodeJobs | None]":
        """The jobs that outlive the command that began them; None where every job runs in the foreground."""


def pending_jobs(cluster: Cluster) -> PendingJobs:
    """The note of a cluster."""
    return PendingJobs(cluster.folder.path / "pending_jobs.json")
