"""What keeps the role processes of a cluster running: systemd on its machines, or our supervisor on this one."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cluster.errors import ClusterError
from deploy.cluster.fleet import Fleet
from deploy.cluster.role_status import ClusterStatus

if TYPE_CHECKING:
    from cluster.inventory import Task
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


@dataclass(frozen=True)
class LogPlace:
    """Where the lines of a role are on its node: a file, or the journal of a unit."""

    name: str
    node: str
    path: Path | None = None
    unit: str | None = None


@dataclass(frozen=True)
class Stopped:
    """The roles that a stop ended, by node; `killed` ignored the first signal; `failed` nodes may still run theirs.

    `inventory` is the file that the cluster was started from, where the service manager remembers it.
    """

    roles: Mapping[str, Sequence[str]]
    killed: tuple[str, ...] = ()
    failed: Mapping[str, ClusterError] = field(default_factory=dict)
    inventory: str | None = None

    @property
    def count(self) -> int:
        """Roles that ran."""
        return sum(len(names) for names in self.roles.values())


class ServiceManager(Protocol):
    """Keeps the roles of one cluster running. `fleet` has the connectors of its nodes."""

    def state(self, fleet: Fleet) -> ClusterStatus:
        """Every role of the inventory as it is now. A stopped cluster is no error; a silent node has failed roles."""

    def start(self, fleet: Fleet, tasks: "Sequence[Task]", report: Report) -> ClusterStatus:
        """Start these roles; the status once each is ready or has failed, `report`ed on the way."""

    def stop(self, fleet: Fleet, nodes: Sequence[str]) -> Stopped:
        """Interrupt a job in progress, so that it writes its result so far, then stop the roles of these nodes."""

    def restart(self, fleet: Fleet, tasks: "Sequence[Task]", report: Report) -> ClusterStatus:
        """Stop and start these roles; the status as with `start`. Raises ClusterError."""

    def logs(self, tasks: "Sequence[Task]") -> Sequence[LogPlace]:
        """Where the lines of these roles are, the service manager's own first where it has some."""


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
