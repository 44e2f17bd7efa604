"""How the two kinds of clusters are shown: by role on this machine, by node on machines."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from core.ground.errors import ClusterError, ExitCode
from core.logs import say, say_json
from deploy.cluster.cluster import ManagedCluster
from deploy.cluster.fleet import Fleet
from deploy.cluster.services import ClusterStatus, RoleState, Stopped, kept_tasks
from deploy.common.command_line import command
from deploy.common.interrupts import waiting_for
from deploy.converge.deployment import LOOKING, DeploymentPlan, Result
from deploy.converge.subject import DeploymentDisplay
from deploy.converge.survey import survey
from deploy.converge.this_machine import changes_of, plan_start
from deploy.jobs.services import JobServices, coordinator_metrics
from deploy.terminal import console, deployments

if TYPE_CHECKING:
    from rich.console import RenderableType

    from core.inventory import Task
    from deploy.converge.desired import Machines


@dataclass(frozen=True)
class Picture:
    """What `status` shows: for programs, and for a person as wide as `columns`."""

    well: bool
    json: dict[str, Any]
    renderables: "Callable[[int], list[RenderableType]]"


class ViewOfThisMachine:
    """What a command shows of a cluster of processes: its roles."""

    def __init__(self, cluster: ManagedCluster, jobs: JobServices) -> None:
        self._cluster = cluster
        self._inventory = cluster.inventory
        self._jobs = jobs

    def progress(self, quiet: bool) -> AbstractContextManager[DeploymentDisplay]:
        """Show the progress of a deployment, and then its warnings."""
        display_class: type[deployments.Progress] = deployments.ProgressOfRoles
        if quiet:
            display_class = deployments.Progress
        return deployments.progress(display_class, "starting the supervisor")

    def plan(self, planned: DeploymentPlan, with_jobs: bool | None, for_programs: bool) -> ExitCode:
        """Show what a start would do; return the exit code of the command.

        `with_jobs`: --jobs, --no-jobs or neither.
        """
        lost = list(planned.survey.lost.values())
        if lost:
            raise ClusterError(lost[0].last_lines[0])
        status = next(iter(planned.survey.facts.values()))
        steps = plan_start(
            kept_tasks(self._inventory),
            status,
            self._inventory.jobs.order,
            with_jobs,
            self._inventory.path,
            nodes=planned.survey.facts,
            due=planned.counts_as_start or self._jobs.pending.noted,
        )
        if for_programs:
            local_plan = {
                "changes": changes_of(steps),
                "steps": [
                    {"kind": step.action, "subject": step.subject, "detail": step.detail}
                    for step in steps
                ],
            }
            say_json({"cluster": self._inventory.cluster, **plans_json(planned), **local_plan})
        else:
            deployments.show_steps(steps, self._inventory.path)
        if any(step.action == "refuse" for step in steps):
            return ExitCode.BAD_USAGE
        return ExitCode.DONE

    def result(self, result: Result, fleet: Fleet, idle_said: bool) -> None:
        """Show how a deployment ended; `idle_said`: another line will say that nothing changed.

        Failures go to stderr: the roles have said before why they do not start.
        """
        for failure in result.recap.failures.values():
            of_roles = failure.phase == "services" and failure.return_code is None
            if of_roles:
                say("\n".join(failure.last_lines), error=True)
            else:
                say(failure.line, error=True)
        if result.recap.failures or (idle_said and not result.recap.changed):
            return
        counts = role_counts(self._cluster.services.state(fleet))
        if result.recap.changed:
            say(f"running: {counts}")
        else:
            say(f"already running: {counts}")

    def status(self, fleet: Fleet, names: Sequence[str], *, with_job: bool) -> Picture:
        """Return the picture of the nodes as they are now."""
        now = self._cluster.services.state(fleet)
        job_pid = self._jobs.running_job()
        now = replace(now, roles=tuple(role for role in now.roles if role.node in names))
        progress = ""
        if with_job and job_pid is not None:
            progress = _progress(self._cluster, fleet)
        return Picture(
            now.running,
            {**now.to_json(), "job_pid": job_pid},
            lambda columns: console.status_parts(now, job_pid, progress, columns),
        )

    def stopped(self, stopped: Stopped) -> None:
        """Show what a stop did."""
        line = f"nothing was running (looked in {self._cluster.folder.path})"
        if stopped.count:
            line = "stopped"
        if stopped.killed:
            line += f"; had to be killed: {', '.join(stopped.killed)}"
        say(line)

    def restarted(self, tasks: "Sequence[Task]", now: ClusterStatus) -> None:
        """Show which roles were restarted."""
        if len(tasks) == len(now.roles):
            say(f"running: {role_counts(now)}")
        else:
            say(f"restarted {', '.join(task.name for task in tasks)}")


class ViewOfMachines:
    """What a command shows of a cluster of machines: its nodes."""

    def __init__(self, cluster: ManagedCluster, machines: "Callable[[], Machines]") -> None:
        self._cluster = cluster
        self._inventory = cluster.inventory
        self._machines = machines

    def progress(self, quiet: bool) -> AbstractContextManager[DeploymentDisplay]:
        """Show the progress of a deployment, and then its warnings.

        One of minutes is never quiet.
        """
        return deployments.progress(deployments.ProgressOfNodes, "connecting")

    def plan(self, planned: DeploymentPlan, with_jobs: bool | None, for_programs: bool) -> ExitCode:
        """Show what a start would do; return the exit code of the command."""
        if for_programs:
            say_json({"cluster": self._inventory.cluster, **plans_json(planned)})
        else:
            deployments.show_plans(planned.plans, planned.unfit, planned.addresses)
            if planned.changes:
                hint = command("deploy start", self._inventory.path)
                say(f"{planned.changes} to change; `{hint}` does it")
            else:
                say("nothing to change")
        if planned.unfit:
            return ExitCode.DEGRADED
        return ExitCode.DONE

    def result(self, result: Result, fleet: Fleet, idle_said: bool) -> None:
        """Show how a deployment ended."""
        deployments.show_recap(result.recap, result.path)

    def status(self, fleet: Fleet, names: Sequence[str], *, with_job: bool) -> Picture:
        """Return the picture of the nodes as they are now."""
        from deploy.converge.reachability import found_unreached
        from deploy.converge.subject import DRIFT
        from deploy.converge.systemd import node_rows, role_states

        machines = self._machines()
        with waiting_for(LOOKING, quiet=with_job):
            surveyed = survey(fleet, machines.ask, names)
            unreached = found_unreached(self._inventory, fleet, surveyed.facts, surveyed.lost)
        now = machines.confirmed(surveyed)
        drifts = [
            finding
            for finding in (*now.findings(surveyed), *now.drifts(surveyed))
            if finding.topic == DRIFT
        ]
        rows = node_rows(machines, surveyed, (*unreached, *drifts))
        job = []
        if with_job:
            job.append(_progress(self._cluster, fleet) or "no job runs")
        return Picture(
            all(row.well for row in rows),
            {
                **role_states(self._inventory, surveyed).to_json(),
                "nodes": [row.to_json() for row in rows],
            },
            lambda columns: [*console.node_parts(rows, columns), *job],
        )

    def stopped(self, stopped: Stopped) -> None:
        """Show what a stop did."""
        if stopped.roles:
            if stopped.count:
                say(f"stopped {stopped.count} roles on {len(stopped.roles)} nodes")
            else:
                say("nothing was running")
        if stopped.count and self._inventory.monitor_node is not None:
            say(f"the monitor on {self._inventory.monitor_node} stays, and reports them as down")

    def restarted(self, tasks: "Sequence[Task]", now: ClusterStatus) -> None:
        """Show which roles were restarted."""
        say(f"restarted on {', '.join(dict.fromkeys(task.node for task in tasks))}")


View = ViewOfThisMachine | ViewOfMachines
"""How one kind of cluster is shown."""


def plans_json(planned: DeploymentPlan) -> dict[str, object]:
    """Plain values."""
    return {
        "changes": planned.changes,
        "phases": {
            phase: {
                node: [change.to_json() for change in changes]
                for node, changes in nodes.items()
                if changes
            }
            for phase, nodes in planned.plans.items()
        },
        "unfit": {name: failure.to_json() for name, failure in planned.unfit.items()},
        "addresses": list(planned.addresses),
    }


def role_counts(now: ClusterStatus) -> str:
    """`1 ps, 2 workers`."""
    ready = [role.role for role in now.in_state(RoleState.READY)]
    return f"{ready.count('ps')} ps, {ready.count('worker')} workers"


def _progress(cluster: ManagedCluster, fleet: Fleet) -> str:
    """A line on how far the job is, empty where none runs; where that cannot be known, why."""
    try:
        return console.progress_line(coordinator_metrics(cluster, fleet))
    except ClusterError as problem:
        return f"whether a job runs, and how far it is, cannot be read: {problem}"
