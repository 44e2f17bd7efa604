"""What keeps a cluster's roles running (systemd, or our supervisor here), and the choice of some.

People choose by `--role worker:1`, `--node rpi03`, `--limit storage`; the choice is pure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from core.ground.errors import ClusterError, ExitCode, UsageError
from core.inventory import Task

if TYPE_CHECKING:
    from core.inventory import Inventory, Task
    from deploy.cluster.fleet import Fleet


class RoleState(StrEnum):
    """Where a role process is in its life."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    FROZEN = "frozen"
    WAITING = "waiting"  # for its next restart
    FAILED = "failed"
    STOPPING = "stopping"


SETTLED = frozenset({RoleState.READY, RoleState.FAILED})
"""States in which waiting for a start has an answer."""


@dataclass(frozen=True)
class RoleStatus:
    """One role process.

    `reason` says why it is not simply ready; figures are None where there is no process.
    """

    role: str
    index: int
    node: str
    address: str
    metrics_address: str
    state: RoleState
    pid: int | None = None
    anonymous_memory_bytes: int | None = None
    uptime_seconds: float | None = None
    restarts: int = 0
    reason: str = ""

    @classmethod
    def of(cls, task: "Task", state: RoleState, **figures: Any) -> "RoleStatus":
        """The status of a task's process; `figures` are the fields after `state`."""
        place = (task.role, task.index, task.node, task.address, task.metrics_address)
        return cls(*place, state, **figures)

    @property
    def name(self) -> str:
        """`worker:1`."""
        return f"{self.role}:{self.index}"

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the role's name as `task`."""
        return {"task": self.name, **asdict(self)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "RoleStatus":
        """The inverse of `to_json`."""
        values = {name: value for name, value in record.items() if name != "task"}
        return cls(**{**values, "state": RoleState(values["state"])})


@dataclass(frozen=True)
class ClusterStatus:
    """All roles of a cluster in the inventory's order."""

    cluster: str
    roles: tuple[RoleStatus, ...]
    supervisor_pid: int | None = None

    @property
    def running(self) -> bool:
        """Whether every role is ready."""
        return all(role.state is RoleState.READY for role in self.roles)

    @property
    def summary(self) -> str:
        """`running`, `degraded` or `stopped`."""
        if self.running:
            return "running"
        if all(role.state is RoleState.STOPPED for role in self.roles):
            return "stopped"
        return "degraded"

    @property
    def serves_jobs(self) -> bool:
        """Whether a job can run: every parameter server is ready and at least one worker."""
        ready = {role.role for role in self.in_state(RoleState.READY)}
        return ready == {"ps", "worker"} and all(
            role.state is RoleState.READY for role in self.roles if role.role == "ps"
        )

    def in_state(self, *states: RoleState) -> tuple[RoleStatus, ...]:
        """The roles in one of `states`."""
        return tuple(role for role in self.roles if role.state in states)

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `status --json` prints them and the supervisor sends them."""
        return {
            "cluster": self.cluster,
            "state": self.summary,
            "supervisor_pid": self.supervisor_pid,
            "roles": [role.to_json() for role in self.roles],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "ClusterStatus":
        """The inverse of `to_json`."""
        roles: Sequence[Mapping[str, Any]] = record["roles"]
        return cls(
            record["cluster"],
            tuple(RoleStatus.from_json(role) for role in roles),
            record["supervisor_pid"],
        )


Report = Callable[[ClusterStatus], None]


@dataclass(frozen=True)
class LogPlace:
    """Where lines are on a node: a file, units in the journal, or the log of a coordinator's run.

    `name` is the process that writes them (`worker:3`), empty for the rest of a node. `unit` is a
    pattern of units. `runs` is a folder of runs; with `jobs`, a node's folder of jobs, the latest
    job decides which run is the present one. `user` is the account that reads the file; without one
    it is the account that is logged in.
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
    """The roles that a stop ended, by node.

    `killed` ignored the first signal; `failed` nodes may still run theirs.
    """

    roles: Mapping[str, Sequence[str]]
    killed: tuple[str, ...] = ()
    failed: Mapping[str, ClusterError] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Roles that ran."""
        return sum(len(names) for names in self.roles.values())


class ServiceManager(Protocol):
    """Keeps the roles of one cluster running. `fleet` has the connectors of its nodes."""

    def state(self, fleet: "Fleet") -> ClusterStatus:
        """Return every role of the inventory as it is now.

        A stopped cluster is no error; a silent node has failed roles.
        """

    def stop(self, fleet: "Fleet", nodes: Sequence[str]) -> Stopped:
        """Interrupt a job in progress, then stop the roles of these nodes.

        The job writes the result that it has.
        """

    def restart(self, fleet: "Fleet", tasks: "Sequence[Task]") -> ClusterStatus:
        """Stop and start these roles; the status once each is ready or has failed.

        Raises ClusterError.
        """

    def logs(self) -> Sequence[LogPlace]:
        """Return the places of the cluster's logs."""


SERVICE = "service"
"""The role that is no task: a service knows nothing of jobs."""


def select(tasks: Sequence[Task], roles: Sequence[str], nodes: Sequence[str]) -> tuple[Task, ...]:
    """The tasks that match one of `roles` (if any are given) and one of `nodes` (if any are given).

    Raises UsageError for a name that matches nothing, with the names there are.
    """
    return select_with_services(tasks, (), roles, nodes)[0]


def select_with_services(
    tasks: Sequence[Task], services: Sequence[str], roles: Sequence[str], nodes: Sequence[str]
) -> tuple[tuple[Task, ...], tuple[str, ...]]:
    """Select as `select` does, and add the nodes `services` whose service matches.

    The role of such a node is `service`.
    """
    known_roles: list[str] = list(dict.fromkeys(task.role for task in tasks))
    known_roles += [task.name for task in tasks]
    if services:
        known_roles.append(SERVICE)
    known_nodes = list(dict.fromkeys([*(task.node for task in tasks), *services]))
    for flag, requested, choices in (
        ("--role", roles, known_roles),
        ("--node", nodes, known_nodes),
    ):
        for name in requested:
            if name not in choices:
                raise UsageError(f"{flag} {name}: expected one of {', '.join(choices)}")

    def takes(node: str, *names: str) -> bool:
        of_role = not roles or any(name in roles for name in names)
        return of_role and (not nodes or node in nodes)

    chosen = tuple(task for task in tasks if takes(task.node, task.role, task.name))
    serving = tuple(node for node in services if takes(node, SERVICE))
    if not chosen and not serving:
        raise UsageError(
            f"no {' or '.join(roles)} on {' or '.join(nodes)}: leave --role or --node out"
        )
    return chosen, serving


def select_nodes(inventory: "Inventory", limit: Sequence[str]) -> tuple[str, ...]:
    """The nodes that `--limit` names, by node or by role; all without it.

    Raises UsageError for an unknown name, and where it names no node.
    """
    names = [node.name for node in inventory.nodes]
    if not limit:
        return tuple(names)
    of_role: dict[str, set[str]] = {"storage": set()}
    for node in inventory.nodes:
        for entry in node.roles:
            of_role.setdefault(entry.role, set()).add(node.name)
    for task in inventory.tasks():
        of_role[task.name] = {task.node}
    expected = f"expected a node or a role: {', '.join([*names, *of_role])}"
    meant = of_role | {name: {name} for name in names}
    chosen: set[str] = set()
    for word in filter(None, ",".join(limit).split(",")):
        if word not in meant:
            raise UsageError(f"--limit {word}: {expected}")
        chosen |= meant[word]
    if not chosen:
        raise UsageError(f"--limit {','.join(limit)!r}: names no node: {expected}")
    return tuple(name for name in names if name in chosen)


def kept_tasks(inventory: "Inventory") -> tuple[Task, ...]:
    """The parameter servers and workers, which a service manager keeps.

    A coordinator lives as long as its job.
    """
    return tuple(task for task in inventory.tasks() if task.role != "coordinator")
