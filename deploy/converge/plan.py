"""What a `start` would do, from what the inventory wants and what runs. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from cluster.inventory.task import Task
from deploy.cluster.role_status import ClusterStatus, RoleState, other_inventory
from deploy.common.hints import command

Kind = Literal["start", "restart", "wait", "keep", "refuse", "run", "skip"]
CHANGES: frozenset[Kind] = frozenset({"start", "restart", "run"})


@dataclass(frozen=True)
class Step:
    """One thing a start does about `subject`, a role or a job."""

    kind: Kind
    subject: str
    detail: str


@dataclass(frozen=True)
class Plan:
    """The steps of a start, in order."""

    steps: tuple[Step, ...]

    @property
    def changes(self) -> int:
        """How many steps change something."""
        return sum(step.kind in CHANGES for step in self.steps)

    @property
    def refusals(self) -> tuple[Step, ...]:
        """The steps that forbid the start."""
        return tuple(step for step in self.steps if step.kind == "refuse")

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {"changes": self.changes, "steps": [asdict(step) for step in self.steps]}


def plan_start(
    tasks: Sequence[Task], status: ClusterStatus, jobs: Sequence[str], wanted: bool | None, inventory: Path
) -> Plan:
    """The plan for the inventory's kept tasks and jobs; `wanted` is `--jobs` (True), `--no-jobs` (False) or neither."""
    problem = disagreement(tasks, status, inventory)
    if problem:
        return Plan((Step("refuse", status.cluster, problem),))
    roles = {role.name: role for role in status.roles}
    steps = []
    for task in tasks:
        role = roles[task.name]
        where = f"{task.address}, metrics on {task.metrics_address}"
        if role.state is RoleState.STOPPED:
            steps.append(Step("start", task.name, f"{where}, on {task.node}"))
        elif role.state in (RoleState.FAILED, RoleState.FROZEN):
            steps.append(Step("restart", task.name, role.reason or f"{role.state} (pid {role.pid})"))
        elif role.state is RoleState.READY:
            steps.append(Step("keep", task.name, f"ready at {where} (pid {role.pid})"))
        else:
            steps.append(Step("wait", task.name, f"{role.state}{': ' if role.reason else ''}{role.reason}"))
    return Plan((*steps, *job_steps(jobs, wanted, everything_ran=status.running)))


def job_steps(jobs: Sequence[str], wanted: bool | None, *, everything_ran: bool) -> tuple[Step, ...]:
    """Run the jobs, unless they are not wanted or, said nothing, the cluster was found running."""
    if wanted is False:
        return tuple(Step("skip", job, "--no-jobs") for job in jobs)
    if wanted is None and everything_ran:
        return tuple(Step("skip", job, "already running, jobs not repeated (--jobs runs them)") for job in jobs)
    return tuple(Step("run", job, f"job {number} of {len(jobs)}") for number, job in enumerate(jobs, 1))


def disagreement(tasks: Sequence[Task], status: ClusterStatus, inventory: Path) -> str:
    """One line when other roles run than the file `inventory` says, else empty.

    Starting the difference would give a cluster that no file describes, with addresses its members do not share.
    """
    if all(role.state is RoleState.STOPPED for role in status.roles):
        return ""
    wanted = {task.name: (task.address, task.metrics_address) for task in tasks}
    present = {role.name: (role.address, role.metrics_address) for role in status.roles}
    if wanted == present:
        return ""
    changes = [
        *(f"{name} runs and is not in the inventory" for name in present if name not in wanted),
        *(f"{name} is new" for name in wanted if name not in present),
        *(
            f"{name} runs at {present[name][0]}, not {place[0]}"
            for name, place in wanted.items()
            if name in present and present[name] != place
        ),
    ]
    other = other_inventory(status.inventory, inventory)
    return (
        f"cluster {status.cluster}{f', started from {other},' if other else ''} runs with other roles "
        f"({'; '.join(changes)}): `{command('deploy restart', inventory)}` changes it over"
    )
