"""What a deployment needs of whatever keeps its role processes running: the one thing `connection` swaps.

Every action is written against `Services`; `deploy.cluster.connections` knows what is behind it.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from deploy.cluster.role_status import ClusterStatus

if TYPE_CHECKING:
    from deploy.jobs.node_jobs import NodeJobs

Report = Callable[[ClusterStatus], None]


@dataclass(frozen=True)
class LogFile:
    """Where a role's log is written, and the name to show beside its lines."""

    name: str
    path: Path


@dataclass(frozen=True)
class StopReport:
    """Whether anything ran, what had to be killed because asking did not do, and the inventory it was started from."""

    ran: bool
    killed: tuple[str, ...]
    inventory: str | None = None


class JobServices(Protocol):
    """What a job needs to know of a cluster, and where it is run."""

    def status(self) -> ClusterStatus:
        """Every role of the inventory as it is now; a stopped cluster is no error."""

    def run_job(self, job: str, flags: Sequence[str]) -> int:
        """Run one job to its end, with these flags of `python -m cluster`; its exit code.

        A coordinator that is killed, or that loses a parameter server, is brought back with its roles. Raises
        ClusterError when another job runs on the cluster, or the roles do not come back.
        """

    def running_job(self) -> int | None:
        """Pid of the command that runs a job on this cluster now, None without one."""

    def node_jobs(self) -> "AbstractContextManager[NodeJobs | None]":
        """The jobs that outlive the command that began them; None where every job runs in the foreground."""


class Services(JobServices, Protocol):
    """The role processes of one cluster, as something that can be asked and told."""

    def start(self, report: Report) -> ClusterStatus:
        """Start what is not running; the status once every role is ready or has failed, `report`ed on the way."""

    def stop(self) -> StopReport:
        """Interrupt a job in progress, so that it writes its result so far, then stop every role."""

    def restart(self, names: Sequence[str], report: Report) -> ClusterStatus:
        """End and start these roles; the status as with `start`."""

    def logs(self) -> Sequence[LogFile]:
        """The logs there are."""
