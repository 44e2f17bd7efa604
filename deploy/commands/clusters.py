"""One cluster for the whole of a command, by its kind: processes of this machine, or machines.

Each kind has its nodes, services, jobs and data, and says how it is shown: by role or by node.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from core.ground.errors import ClusterError, ExitCode, UsageError
from core.logs import say, say_json
from deploy.cluster.cluster import ManagedCluster, local_cluster, over_ssh
from deploy.cluster.fleet import Fleet
from deploy.cluster.login import TUNNEL_KEYS_FILE, TunnelKeys
from deploy.cluster.services import ClusterStatus, RoleState, Stopped, kept_tasks, select_nodes
from deploy.commands.action import end_degraded
from deploy.common.command_line import command
from deploy.common.interrupts import waiting_for
from deploy.converge.apply import survey
from deploy.converge.deployment import (
    LOOKING,
    MONITOR_PHASES,
    DeploymentPlan,
    DeploymentRequest,
    Result,
    converge,
)
from deploy.converge.publication import DataHere, JobData, PublishedData
from deploy.converge.subject import DeploymentDisplay
from deploy.converge.this_machine import ThisMachine, changes_of, plan_start
from deploy.jobs.services import ForegroundJobs, JobServices, coordinator_metrics
from deploy.supervisor.services import Supervised
from deploy.terminal import console, deployments

if TYPE_CHECKING:
    from rich.console import RenderableType

    from core.inventory import Inventory, Task
    from deploy.converge.desired import Machines


@dataclass(frozen=True)
class Picture:
    """What `status` shows: for programs, and for a person as wide as `columns`."""

    well: bool
    json: dict[str, Any]
    renderables: "Callable[[int], list[RenderableType]]"


class _Open:
    """What both kinds have. Making one connects to no node."""

    cluster: ManagedCluster
    jobs: JobServices
    data: JobData
    keys: TunnelKeys | None = None
    """The nodes' public keys of WireGuard; None where there are no machines."""

    def __init__(self, inventory: "Inventory") -> None:
        self.inventory = inventory

    def replace_keys(self, names: Sequence[str]) -> None:
        """Let these nodes make new keys of WireGuard. Raises UsageError where none are used."""
        if self.keys is None or not self.inventory.encrypted:
            raise UsageError("--new-keys: only nodes with `transport: wireguard` have keys")
        self.keys.replace(select_nodes(self.inventory, names))


class OpenProcesses(_Open):
    """A cluster whose roles are processes of this machine. `fab` shows its roles."""

    has_machines = False

    def __init__(self, inventory: "Inventory", overrides: Sequence[str]) -> None:
        super().__init__(inventory)
        services = Supervised(inventory, overrides)
        self.cluster = local_cluster(inventory, overrides, services)
        self.jobs = ForegroundJobs(self.cluster, lambda: services.restart_in_place(()))
        self.data = DataHere(inventory)
        self.desired = ThisMachine(inventory, services)

    def for_machines(self, action: str) -> "OpenMachines":
        """Raise UsageError: the action is one of machines."""
        raise UsageError(
            f"{self.inventory.path}: connection: local: `{action}` is for machines reached over"
            " SSH; here every role is a process of this machine: name another file with"
            " --inventory, such as one of `fab init --hosts`"
        )

    def operator(self, action: str) -> AbstractContextManager[Sequence[str]]:
        """Return the jobs that run; the supervisor takes one command after the other."""
        pid = self.jobs.running_job()
        return nullcontext(() if pid is None else (f"(fab, pid {pid})",))

    def monitor(self) -> None:
        """Run a Prometheus in the foreground."""
        from deploy.monitor.files import run_prometheus

        state = self.cluster.folder
        state.create()
        run_prometheus(self.inventory, state.path / "monitor", lambda line: say(line))

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
            kept_tasks(self.inventory),
            status,
            self.inventory.jobs.order,
            with_jobs,
            self.inventory.path,
            nodes=planned.survey.facts,
            due=planned.counts_as_start or self.jobs.pending.noted,
        )
        if for_programs:
            local_plan = {
                "changes": changes_of(steps),
                "steps": [
                    {"kind": step.action, "subject": step.subject, "detail": step.detail}
                    for step in steps
                ],
            }
            say_json({"cluster": self.inventory.cluster, **plans_json(planned), **local_plan})
        else:
            deployments.show_steps(steps, self.inventory.path)
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
        counts = role_counts(self.cluster.services.state(fleet))
        if result.recap.changed:
            say(f"running: {counts}")
        else:
            say(f"already running: {counts}")

    def status(self, fleet: Fleet, names: Sequence[str], *, with_job: bool) -> Picture:
        """Return the picture of the nodes as they are now."""
        now = self.cluster.services.state(fleet)
        job_pid = self.jobs.running_job()
        now = replace(now, roles=tuple(role for role in now.roles if role.node in names))
        progress = ""
        if with_job and job_pid is not None:
            progress = _progress(self.cluster, fleet)
        return Picture(
            now.running,
            {**now.to_json(), "job_pid": job_pid},
            lambda columns: console.status_parts(now, job_pid, progress, columns),
        )

    def stopped(self, stopped: Stopped) -> None:
        """Show what a stop did."""
        line = f"nothing was running (looked in {self.cluster.folder.path})"
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


class OpenMachines(_Open):
    """A cluster of machines over SSH. `fab` shows its nodes."""

    has_machines = True
    keys: TunnelKeys

    def __init__(self, inventory: "Inventory", overrides: Sequence[str]) -> None:
        """Raise UsageError without a section `storage`."""
        from deploy.converge.code import NodeExtras
        from deploy.converge.systemd import Systemd
        from deploy.jobs.attached_job import SubmittedJobs

        super().__init__(inventory)
        if inventory.storage is None:
            raise UsageError(
                f"{inventory.path}: no section `storage`: the nodes share data and runs through"
                " it; add `storage: {server: NODE}` and give that node the role storage"
            )
        self.cluster = over_ssh(inventory, overrides, Systemd(inventory))
        self.keys = TunnelKeys(self.cluster.folder.path / TUNNEL_KEYS_FILE)
        data = PublishedData(inventory)
        self.data = data
        self.jobs = SubmittedJobs(self.cluster, data.bring, NodeExtras(inventory).bring)

    @cached_property
    def desired(self) -> "Machines":
        """What the machines have to be. The release of this checkout takes a second."""
        from deploy.converge.code import ReleaseChoice
        from deploy.converge.desired import Machines

        cuda = self.inventory.jobs.train.device.kind == "gpu"
        release = ReleaseChoice.of_this_checkout(cuda=cuda)
        return Machines(self.inventory, release, keys=self.keys)

    def for_machines(self, action: str) -> "OpenMachines":
        """Return this cluster, for an action of machines."""
        return self

    def operator(self, action: str) -> AbstractContextManager[Sequence[str]]:
        """Keep other operators' actions from the nodes meanwhile; gives the jobs that run there."""
        from deploy.converge.coordinator import only_operator

        return only_operator(self.cluster, action)

    def run_phases(
        self, action: str, limit: Sequence[str], phases: tuple[str, ...], *, with_data: bool = False
    ) -> None:
        """Run a part of a start; the command ends degraded where a node failed."""
        request = DeploymentRequest(
            action,
            select_nodes(self.inventory, limit),
            phases,
            self.data.publications if with_data else None,
        )
        with self.operator(action), self.cluster.fleet() as fleet:
            with self.progress(quiet=False) as progress:
                result = converge(self.cluster, fleet, self.desired, request, progress)
            self.result(result, fleet, idle_said=False)
        if result.recap.failures or not result.whole:
            end_degraded()

    def monitor(self) -> None:
        """Run the part of a start for the monitor's node. Raises UsageError without one."""
        from deploy.converge.monitor import MONITOR_PASSWORD
        from deploy.monitor.files import url
        from deploy.monitor.ready import USER

        node = self.inventory.monitor_node
        if node is None:
            raise UsageError(
                f"{self.inventory.path}: no node has the role `monitor`: give it to one, or write"
                " the files for a Prometheus that exists with --out DIR"
            )
        self.run_phases("monitor", (node,), MONITOR_PHASES)
        say(
            f"Prometheus: {url(self.inventory)} (user {USER}; root of {node} reads its password in"
            f" {MONITOR_PASSWORD})"
        )

    def progress(self, quiet: bool) -> AbstractContextManager[DeploymentDisplay]:
        """Show the progress of a deployment, and then its warnings.

        One of minutes is never quiet.
        """
        return deployments.progress(deployments.ProgressOfNodes, "connecting")

    def plan(self, planned: DeploymentPlan, with_jobs: bool | None, for_programs: bool) -> ExitCode:
        """Show what a start would do; return the exit code of the command."""
        if for_programs:
            say_json({"cluster": self.inventory.cluster, **plans_json(planned)})
        else:
            deployments.show_plans(planned.plans, planned.unfit, planned.addresses)
            if planned.changes:
                hint = command("deploy start", self.inventory.path)
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

        machines = self.desired
        with waiting_for(LOOKING, quiet=with_job):
            surveyed = survey(fleet, machines.ask, names)
            unreached = found_unreached(self.inventory, fleet, surveyed.facts, surveyed.lost)
        now = machines.confirmed(surveyed)
        drifts = [
            finding
            for finding in (*now.findings(surveyed), *now.drifts(surveyed))
            if finding.topic == DRIFT
        ]
        rows = node_rows(machines, surveyed, (*unreached, *drifts))
        job = []
        if with_job:
            job.append(_progress(self.cluster, fleet) or "no job runs")
        return Picture(
            all(row.well for row in rows),
            {
                **role_states(self.inventory, surveyed).to_json(),
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
        if stopped.count and self.inventory.monitor_node is not None:
            say(f"the monitor on {self.inventory.monitor_node} stays, and reports them as down")

    def restarted(self, tasks: "Sequence[Task]", now: ClusterStatus) -> None:
        """Show which roles were restarted."""
        say(f"restarted on {', '.join(dict.fromkeys(task.node for task in tasks))}")


OpenCluster = OpenProcesses | OpenMachines
"""One kind of cluster as a command has it open."""


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
