"""How the two kinds of clusters are shown: by role on this machine, by node on machines."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cluster.errors import ClusterError, ExitCode
from cluster.logs.terminal import say, say_json
from deploy.cluster.cluster import Cluster
from deploy.cluster.fleet import Fleet
from deploy.cluster.selection import kept_tasks
from deploy.cluster.services import ClusterStatus, RoleState, Stopped, other_inventory
from deploy.common.command_line import command
from deploy.common.waiting import waiting_for
from deploy.converge.change import DeploymentDisplay
from deploy.converge.deployment import LOOKING, Outlook, Result
from deploy.converge.survey import survey
from deploy.converge.this_machine import plan_start
from deploy.jobs.services import JobServices, coordinator_metrics
from deploy.terminal import console

if TYPE_CHECKING:
    from rich.console import RenderableType

    from cluster.inventory import Task
    from deploy.converge.desired import Machines


@dataclass(frozen=True)
class Picture:
    """What `status` shows: for programs, and for a person as wide as `columns`."""

    well: bool
    json: dict[str, Any]
    parts: "Callable[[int], list[RenderableType]]"


class View(ABC):
    """What a command shows of one kind of cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._inventory = cluster.inventory

    @abstractmethod
    def progress(self, quiet: bool) -> AbstractContextManager[DeploymentDisplay]:
        """The progress of a deployment, and then its warnings."""

    @abstractmethod
    def plan(self, outlook: Outlook, wanted: bool | None, for_programs: bool) -> ExitCode:
        """Show what a start would do; the command's exit code. `wanted`: --jobs, --no-jobs or neither."""

    @abstractmethod
    def result(self, result: Result, fleet: Fleet, idle_said: bool) -> None:
        """Show how a deployment ended; `idle_said`: another line will say that nothing changed."""

    @abstractmethod
    def status(self, fleet: Fleet, names: Sequence[str], *, with_job: bool) -> Picture:
        """The nodes as they are now, `with_job`: and how far the running job is."""

    @abstractmethod
    def stopped(self, stopped: Stopped) -> None:
        """Show what a stop did."""

    @abstractmethod
    def restarted(self, tasks: "Sequence[Task]", now: ClusterStatus) -> None:
        """Show which roles were restarted."""


class ViewOfThisMachine(View):
    """`View` of a cluster of processes: its roles."""

    def __init__(self, cluster: Cluster, jobs: JobServices) -> None:
        super().__init__(cluster)
        self._jobs = jobs

    def progress(self, quiet: bool) -> AbstractContextManager[DeploymentDisplay]:
        """See `View`."""
        return console.progress(console.Progress if quiet else console.ProgressOfRoles, "starting the supervisor")

    def plan(self, outlook: Outlook, wanted: bool | None, for_programs: bool) -> ExitCode:
        """See `View`."""
        for failure in outlook.survey.lost.values():
            raise ClusterError(failure.last_lines[0])
        status = next(iter(outlook.survey.facts.values()))
        made = plan_start(
            kept_tasks(self._inventory),
            status,
            self._inventory.jobs.order,
            wanted,
            self._inventory.path,
            nodes=outlook.survey.facts,
            due=outlook.counts_as_start or self._jobs.pending.noted,
        )
        if for_programs:
            say_json({"cluster": self._inventory.cluster, **plans_json(outlook), **made.to_json()})
        else:
            console.show_plan(made, self._inventory.path)
        return ExitCode.BAD_USAGE if made.refusals else ExitCode.DONE

    def result(self, result: Result, fleet: Fleet, idle_said: bool) -> None:
        """See `View`. Failures go to stderr: the roles have said before why they do not start."""
        for failure in result.recap.failures.values():
            of_roles = failure.phase == "services" and failure.return_code is None
            say("\n".join(failure.last_lines) if of_roles else failure.line, error=True)
        if result.recap.failures or (idle_said and not result.recap.changed):
            return
        counts = role_counts(self._cluster.services.state(fleet))
        say(f"running: {counts}" if result.recap.changed else f"already running: {counts}")

    def status(self, fleet: Fleet, names: Sequence[str], *, with_job: bool) -> Picture:
        """See `View`."""
        now, job_pid = self._cluster.services.state(fleet), self._jobs.running_job()
        now = replace(now, roles=tuple(role for role in now.roles if role.node in names))
        progress = ""
        if with_job and job_pid is not None:
            progress = console.progress_line(coordinator_metrics(self._cluster, fleet))
        other = other_inventory(now.inventory, self._inventory.path)
        started_from = [] if with_job or not other else [self._started_from(other)]
        return Picture(
            now.running,
            {**now.to_json(), "job_pid": job_pid},
            lambda columns: [*console.status_parts(now, job_pid, progress, columns), *started_from],
        )

    def stopped(self, stopped: Stopped) -> None:
        """See `View`."""
        line = "stopped" if stopped.count else "nothing was running"
        if stopped.killed:
            line += f"; had to be killed: {', '.join(stopped.killed)}"
        other = other_inventory(stopped.inventory, self._inventory.path)
        say(f"{line}; {self._started_from(other)}" if other else line)

    def restarted(self, tasks: "Sequence[Task]", now: ClusterStatus) -> None:
        """See `View`."""
        every = len(tasks) == len(now.roles)
        say(f"running: {role_counts(now)}" if every else f"restarted {', '.join(task.name for task in tasks)}")

    def _started_from(self, other: str) -> str:
        path = self._inventory.path
        return f"the cluster was started from {other}, not from {path}: both files give it the same name"


class ViewOfMachines(View):
    """`View` of a cluster of machines: its nodes."""

    def __init__(self, cluster: Cluster, machines: "Callable[[], Machines]") -> None:
        super().__init__(cluster)
        self._machines = machines

    def progress(self, quiet: bool) -> AbstractContextManager[DeploymentDisplay]:
        """See `View`. One of minutes is never quiet."""
        return console.progress(console.ProgressOfNodes, "connecting")

    def plan(self, outlook: Outlook, wanted: bool | None, for_programs: bool) -> ExitCode:
        """See `View`."""
        if for_programs:
            say_json({"cluster": self._inventory.cluster, **plans_json(outlook)})
        else:
            console.show_plans(outlook.plans, outlook.unfit)
            hint = command("deploy start", self._inventory.path)
            say(f"{outlook.changes} to change; `{hint}` does it" if outlook.changes else "nothing to change")
        return ExitCode.DEGRADED if outlook.unfit else ExitCode.DONE

    def result(self, result: Result, fleet: Fleet, idle_said: bool) -> None:
        """See `View`."""
        console.show_recap(result.recap, result.path)

    def status(self, fleet: Fleet, names: Sequence[str], *, with_job: bool) -> Picture:
        """See `View`."""
        from deploy.converge.node_table import node_rows
        from deploy.converge.systemd import role_states

        machines = self._machines()
        with waiting_for(LOOKING, quiet=with_job):
            seen = survey(fleet, machines.ask, names)
        rows = node_rows(machines, seen)
        job = [console.progress_line(coordinator_metrics(self._cluster, fleet)) or "no job runs"] if with_job else []
        return Picture(
            all(row.well for row in rows),
            {**role_states(self._inventory, seen).to_json(), "nodes": [row.to_json() for row in rows]},
            lambda columns: [*console.node_parts(rows, columns), *job],
        )

    def stopped(self, stopped: Stopped) -> None:
        """See `View`."""
        if stopped.roles:
            nodes = len(stopped.roles)
            say(f"stopped {stopped.count} roles on {nodes} nodes" if stopped.count else "nothing was running")
        if stopped.count and self._inventory.monitor_node is not None:
            say(f"the monitor on {self._inventory.monitor_node} stays, and reports them as down")

    def restarted(self, tasks: "Sequence[Task]", now: ClusterStatus) -> None:
        """See `View`."""
        say(f"restarted on {', '.join(dict.fromkeys(task.node for task in tasks))}")


def plans_json(outlook: Outlook) -> dict[str, object]:
    """Plain values."""
    return {
        "changes": outlook.changes,
        "phases": {
            phase: {node: [change.to_json() for change in changes] for node, changes in nodes.items() if changes}
            for phase, nodes in outlook.plans.items()
        },
        "unfit": {name: failure.to_json() for name, failure in outlook.unfit.items()},
    }


def role_counts(now: ClusterStatus) -> str:
    """`1 ps, 2 workers`."""
    ready = [role.role for role in now.in_state(RoleState.READY)]
    return f"{ready.count('ps')} ps, {ready.count('worker')} workers"
