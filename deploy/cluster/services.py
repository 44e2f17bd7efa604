"""What keeps the role processes of a cluster running: systemd on its machines, or our supervisor on this one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cluster.errors import ClusterError, ExitCode
from deploy.cluster.role_status import ClusterStatus

if TYPE_CHECKING:
    from cluster.inventory import Task
    from deploy.cluster.fleet import Fleet

Report = Callable[[ClusterStatus], None]


@dataclass(frozen=True)
class LogPlace:
    """Where lines are on a node: a file, units in the journal, or the log of a coordinator's run.

    `name` is the process that writes them (`worker:3`), empty for the rest of a node. `unit` is a pattern of units.
    `runs` is a folder of runs; with `jobs`, a node's folder of jobs, the latest job decides which run is the present
    one. `user` is the account that reads the file; without one it is the account that is logged in.
    """

    name: str
    node: str
    path: Path | None = None
    unit: str | None = None
    runs: str | None = None
    jobs: str | None = None
    user: str | None = None


class DegradedError(ClusterError):
    """A command was carried out, and some role is not ready."""

    exit_code = ExitCode.DEGRADED


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

    def state(self, fleet: "Fleet") -> ClusterStatus:
        """Every role of the inventory as it is now. A stopped cluster is no error; a silent node has failed roles."""

    def stop(self, fleet: "Fleet", nodes: Sequence[str]) -> Stopped:
        """Interrupt a job in progress, so that it writes its result so far, then stop the roles of these nodes."""

    def restart(self, fleet: "Fleet", tasks: "Sequence[Task]") -> ClusterStatus:
        """Stop and start these roles; the status once each is ready or has failed. Raises ClusterError."""

    def logs(self) -> Sequence[LogPlace]:
        """Where the logs of the cluster are."""
