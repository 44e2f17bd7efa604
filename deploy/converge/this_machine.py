"""What a cluster on this machine has to be: its roles, kept by the supervisor.

No packages, no mounts, no firewall.
"""

import os
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from core.ground.errors import ClusterError, UsageError
from core.ground.locks import held_by
from core.inventory import Task
from core.logs import say
from deploy.cluster.connector import Connector
from deploy.cluster.fleet import Fleet, Local
from deploy.cluster.services import ClusterStatus, RoleState, kept_tasks
from deploy.common.command_line import command
from deploy.common.state_folder import StateFolder
from deploy.converge.apply import Survey
from deploy.converge.check import Finding, check_node, gather, guard_of, open_to_accounts
from deploy.converge.deployment import Desired
from deploy.converge.hardware import device_findings, devices_here
from deploy.converge.machine_facts import memory_of_roles
from deploy.converge.subject import Call, Change, Changes, DeploymentDisplay
from deploy.supervisor.services import Supervised

if TYPE_CHECKING:
    from core.inventory import Inventory

STOPS_AFTER = "PSCLUSTER_STOPS_AFTER"
"""A variable of the environment that `make run` sets: it stops the cluster after this start."""


def plan_start(
    tasks: Sequence[Task],
    status: ClusterStatus,
    jobs: Sequence[str],
    run_jobs: bool | None,
    inventory: Path,
    *,
    nodes: Collection[str] | None = None,
    due: bool = False,
) -> list[Change]:
    """The steps of a start in order: for the roles `tasks` (of `nodes`) and the jobs.

    `run_jobs` is `--jobs`, `--no-jobs` (False) or neither: then they run on a cluster that does not
    run yet, or with `due`.
    """
    problem = disagreement(tasks, status, inventory)
    if problem:
        return [Change("cluster", status.cluster, "refuse", problem, ())]
    chosen = [task for task in tasks if nodes is None or task.node in nodes]
    steps = planned_roles(chosen, status)
    due = due or not status.running
    for number, job in enumerate(jobs, 1):
        if run_jobs is False:
            steps.append(Change("job", job, "skip", "--no-jobs", ()))
        elif run_jobs is None and not due:
            detail = "already running, jobs not repeated (--jobs runs them)"
            steps.append(Change("job", job, "skip", detail, ()))
        else:
            steps.append(Change("job", job, "run", f"job {number} of {len(jobs)}", ()))
    return steps


def changes_of(steps: Sequence[Change]) -> int:
    """Return how many steps change something."""
    return sum(step.action in ("start", "restart", "run") for step in steps)


def planned_roles(tasks: Sequence[Task], status: ClusterStatus) -> list[Change]:
    """Return what a start does about each role: start, restart, wait or keep."""
    roles = {role.name: role for role in status.roles}
    steps = []
    for task in tasks:
        role = roles[task.name]
        where = f"{task.address}, metrics on {task.metrics_address}"
        match role.state:
            case RoleState.STOPPED:
                action = "start"
                detail = f"{where}, on {task.node}"
            case RoleState.FAILED | RoleState.FROZEN:
                action = "restart"
                detail = role.reason or f"{role.state} (pid {role.pid})"
            case RoleState.READY:
                action = "keep"
                detail = f"ready at {where} (pid {role.pid})"
            case _:
                action = "wait"
                detail = ": ".join(filter(None, (role.state, role.reason)))
        steps.append(Change("role", task.name, action, detail, ()))
    return steps


def disagreement(tasks: Sequence[Task], status: ClusterStatus, inventory: Path) -> str:
    """Return one line when other roles run than the file `inventory` says, else empty.

    Starting the difference would give a cluster that no file describes, with addresses its members
    do not share.
    """
    if all(role.state is RoleState.STOPPED for role in status.roles):
        return ""
    expected = {task.name: (task.address, task.metrics_address) for task in tasks}
    present = {role.name: (role.address, role.metrics_address) for role in status.roles}
    if expected == present:
        return ""
    changes = [
        *(f"{name} runs and is not in the inventory" for name in present if name not in expected),
        *(f"{name} is new" for name in expected if name not in present),
        *(
            f"{name} runs at {present[name][0]}, not {place[0]}"
            for name, place in expected.items()
            if name in present and present[name] != place
        ),
    ]
    return (
        f"cluster {status.cluster} runs with other roles ({'; '.join(changes)}):"
        f" `{command('deploy restart', inventory)}` changes it over"
    )


@dataclass(frozen=True)
class Roles:
    """Roles that have to be ready. The supervisor starts them side by side."""

    tasks: tuple[Task, ...]
    services: Supervised
    inventory: Path

    def changes(self, facts: ClusterStatus) -> Changes:
        """Yield one change for each role; the first starts them all."""
        steps = [step for step in planned_roles(self.tasks, facts) if step.action != "keep"]
        names = [step.subject for step in steps]
        first = Call(f"start {', '.join(names)}", self._start)
        followers = [Call("ready with the first", lambda progress: None)] * len(names)
        for step, call in zip(steps, (first, *followers), strict=False):
            yield replace(step, steps=(call,), runs_jobs=True)

    def _start(self, progress: DeploymentDisplay) -> None:
        """Raises ClusterError with the reason of each role that is not ready."""
        try:
            # The roles take longer to start than the probe, which therefore costs no time.
            with ThreadPoolExecutor(1) as beside:
                guard_probe = beside.submit(guard_of, Local("this machine"))
                now = self.services.start(self.tasks, progress.roles)
        except KeyboardInterrupt:
            if os.environ.get(STOPS_AFTER):
                follows = "they are stopped now"
            else:
                follows = f"they stay until `{command('deploy stop', self.inventory)}`"
            say(f"interrupted while the roles start; {follows}", error=True)
            raise
        require_ready(now, [task.name for task in self.tasks], self.inventory)
        _, accounts, privileges = guard_probe.result()
        if not accounts.holds:
            progress.warning(open_to_accounts(self.tasks, accounts))
        if not privileges.holds:
            progress.warning(privileges.line)


def require_ready(now: ClusterStatus, names: Sequence[str], inventory: Path) -> None:
    """Raise ClusterError unless all of these roles are ready.

    The error has the reasons; without one it says how to end the roles that run.
    """
    chosen = [role for role in now.roles if role.name in names]
    if all(role.state is RoleState.READY for role in chosen):
        return
    unwell = [f"{role.name} {role.state}: {role.reason}" for role in chosen if role.reason]
    if unwell:
        raise ClusterError("\n".join(unwell))
    alive = sum(role.pid is not None for role in now.roles)
    summary = f"{alive} of {len(now.roles)} roles {'runs' if alive == 1 else 'run'}"
    ends = {0: "the supervisor", 1: "it"}.get(alive, "them")
    raise ClusterError(f"{summary}; `{command('deploy stop', inventory)}` ends {ends}")


@dataclass(frozen=True)
class ThisMachine(Desired):
    """`Desired` for a cluster of processes.

    The facts of each node are the state of the whole cluster.

    It shares and fetches nothing. It has no findings: a role that cannot start says why within a
    second.
    """

    inventory: "Inventory"
    services: Supervised

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The roles that the supervisor keeps."""
        return kept_tasks(self.inventory)

    def ask(self, node: Connector) -> ClusterStatus:
        """Return the state of the whole cluster."""
        return self.services.state()

    def refuse(self, answers: Survey[ClusterStatus]) -> None:
        """Raise UsageError for a cluster that runs with other roles."""
        for failure in answers.lost.values():
            raise ClusterError(failure.last_lines[0])
        for status in answers.facts.values():
            problem = disagreement(self.tasks, status, self.inventory.path)
            if problem:
                raise UsageError(problem)

    def check(self, fleet: Fleet) -> tuple[Finding, ...]:
        """Check the ports, the memory and the devices of this machine."""
        tasks = self.inventory.tasks()
        ports = [
            port
            for task in tasks
            for port in (task.port, task.metrics_port, task.page_port)
            if port is not None
        ]
        facts = gather(next(iter(fleet.nodes.values())), ports, self.inventory)
        memory = memory_of_roles(
            self.inventory, {node.name: facts.cores for node in self.inventory.nodes}
        )
        job = held_by(StateFolder.of(self.inventory.path, self.inventory.cluster).job_lock)
        of_devices = device_findings(self.inventory, tasks, devices_here(), facts.machine)
        findings = check_node(tasks, self.services.state(), facts, memory, job is not None)
        return (*findings, *(Finding(level, topic, line) for level, topic, line in of_devices))

    def plan(self, phase: str, node: str, facts: ClusterStatus) -> Changes:
        """Yield the starts of the node's roles, in the phase that starts services."""
        if phase == "services" and not disagreement(self.tasks, facts, self.inventory.path):
            tasks = tuple(task for task in self.tasks if task.node == node)
            yield from Roles(tasks, self.services, self.inventory.path).changes(facts)
