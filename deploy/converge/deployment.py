"""A deployment from facts to recap: look, plan, carry out, verify.

One program for every kind of cluster.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploy.cluster.cluster import ManagedCluster, TrustedAddresses
from deploy.cluster.connector import Connector
from deploy.cluster.fleet import Fleet, split_errors
from deploy.converge.apply import StepFailure, Survey, apply, failure_of, survey
from deploy.converge.check import Finding
from deploy.converge.publication import Publication
from deploy.converge.reachability import unreachable
from deploy.converge.recap import Recap, UnfinishedRollback
from deploy.converge.subject import Change, Changes, DeploymentDisplay

if TYPE_CHECKING:
    from core.inventory import Inventory

PHASES = (
    "prepare",
    "transport",
    "storage",
    "mounts",
    "publish",
    "code",
    "firewall",
    "services",
    "monitor",
    "service",
)
"""The phases: each ends on all nodes before the next begins. A mount needs its server, an
installation its wheels."""
PUSH_PHASES = ("prepare", "transport", "mounts", "publish", "code")
STORAGE_PHASES = ("prepare", "transport", "storage", "mounts", "publish")
MONITOR_PHASES = ("prepare", "transport", "firewall", "monitor")

LOOKING = "looking at the nodes"
Plans = Mapping[str, Mapping[str, Sequence[Change]]]
Say = Callable[[str], None]


@dataclass(frozen=True)
class DeploymentRequest:
    """What one command asks for.

    `publications` prepares the windows of the jobs; None where no job needs any.
    """

    action: str
    names: tuple[str, ...]
    phases: tuple[str, ...] = PHASES
    publications: Callable[[], Sequence[Publication]] | None = None


class Desired(ABC):
    """What the nodes of one cluster have to be: `Machines` and `ThisMachine` are the two kinds."""

    inventory: "Inventory"

    @property
    def publisher(self) -> str:
        """The node that shares folders with all others; empty where none are shared."""
        return ""

    @abstractmethod
    def ask(self, node: Connector) -> Any:
        """The facts of one node. Raises ClusterError."""

    def nodes_to_ask(self, names: Sequence[str], phases: Sequence[str]) -> tuple[str, ...]:
        """The nodes to look at for these."""
        return tuple(names)

    @abstractmethod
    def check(self, fleet: Fleet) -> tuple[Finding, ...]:
        """Everything that would make a start fail, and what else is worth knowing."""

    def findings(self, answers: Survey[Any]) -> tuple[Finding, ...]:
        """Return what a deployment has to know first; a problem keeps its node out of the run."""
        return ()

    def confirmed(self, answers: Survey[Any]) -> "Desired":
        """Return this without the addresses that nodes say they do not have."""
        return self

    def address_lines(self, answers: Survey[Any]) -> tuple[str, ...]:
        """Return the lines about addresses."""
        return ()

    def refuse(self, answers: Survey[Any]) -> None:  # noqa: B027  most refuse nothing
        """Raise ClusterError where a start would make a cluster that no inventory describes."""

    def supplied(
        self, fit: Mapping[str, Any], request: DeploymentRequest, update: Say
    ) -> "Desired":
        """Return this with all that the nodes will need; `update` gets what takes time.

        `fit` has the facts of the nodes that take part in the request.
        """
        return self

    @abstractmethod
    def plan(self, phase: str, node: str, facts: Any) -> Changes:
        """Yield what to change in one phase on one node, in order.

        `facts` are those of the cluster's kind (`ask`).
        """

    def tidy(self, fleet: Fleet, answers: Survey[Any], names: Sequence[str]) -> list[str]:
        """Remove what no node needs any more after a deployment that worked.

        The problems that it returns stop no job.
        """
        return []


@dataclass(frozen=True)
class DeploymentPlan:
    """What was found before anything is changed, and what would be changed."""

    desired: Desired
    survey: Survey[Any]
    unfit: Mapping[str, StepFailure]
    plans: Plans
    addresses: tuple[str, ...] = ()
    """Lines about names, and about nodes that the others do not let in."""

    @property
    def changes(self) -> int:
        """Return how many changes the plans hold."""
        return sum(len(changes) for phase in self.plans.values() for changes in phase.values())

    @property
    def counts_as_start(self) -> bool:
        """Whether the jobs run after it: a unit, a link or a role changes."""
        return any(
            change.runs_jobs
            for phase in self.plans.values()
            for changes in phase.values()
            for change in changes
        )


@dataclass(frozen=True)
class Result:
    """A deployment that ended; not `whole` when it stopped before the last phase."""

    recap: Recap
    planned: DeploymentPlan
    whole: bool
    path: Path
    """The file of the recap."""


def survey_and_plan(
    fleet: Fleet, desired: Desired, request: DeploymentRequest, update: Say
) -> DeploymentPlan:
    """Survey and plan. `update` gets what takes time."""
    answers = survey(fleet, desired.ask, desired.nodes_to_ask(request.names, request.phases))
    desired = desired.confirmed(answers)
    addresses = desired.address_lines(answers)
    unfit = dict(answers.lost)
    for finding in desired.findings(answers):
        if finding.level == "problem" and finding.node not in unfit:
            unfit[finding.node] = StepFailure(finding.node, "facts", finding.topic, (finding.line,))
    fit = {name: facts for name, facts in answers.facts.items() if name not in unfit}
    desired = desired.supplied(fit, request, update)
    plans = plan(desired, fit)
    if desired.publisher not in request.names:
        for phase in set(PHASES) - set(STORAGE_PHASES):
            plans[phase].pop(desired.publisher, None)
    return DeploymentPlan(desired, answers, unfit, plans, addresses)


def plan(desired: Desired, facts: Mapping[str, Any]) -> dict[str, dict[str, tuple[Change, ...]]]:
    """The changes by phase and node; pure."""
    return {
        phase: {
            name: tuple(desired.plan(phase, name, node_facts)) for name, node_facts in facts.items()
        }
        for phase in PHASES
    }


def converge(
    cluster: ManagedCluster,
    fleet: Fleet,
    desired: Desired,
    request: DeploymentRequest,
    progress: DeploymentDisplay,
    before: Callable[[DeploymentPlan], None] = lambda planned: None,
) -> Result:
    """Bring the nodes to what the inventory says, and write the recap.

    `before` is called before the first change, if there may be one. Raises what `Desired.refuse`
    raises.
    """
    recap = Recap(
        request.action,
        cluster.inventory.cluster,
        desired.nodes_to_ask(request.names, request.phases),
        request.names,
    )
    kept_as = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{request.action}"
    begun = time.monotonic()
    progress.line("", LOOKING)
    planned = survey_and_plan(fleet, desired, request, lambda message: progress.line("", message))
    desired.refuse(planned.survey)
    recap.addresses = (*planned.addresses, *cluster.lines_of_nodes_gone)
    inventory = planned.desired.inventory
    relayed = inventory.unproven & planned.survey.facts.keys()
    TrustedAddresses(cluster.known_hosts).keep(inventory, dict.fromkeys(relayed))
    deployment = PlanRunner(fleet, planned.desired, recap, progress, begun)
    for failure in planned.unfit.values():
        deployment.lose(failure)
    reason = too_few(cluster.inventory, recap.failures)
    whole = False
    if reason:
        recap.notes.append(f"nothing was changed: {reason}")
    else:
        before(planned)
        if "code" in request.phases:
            UnfinishedRollback.of(cluster).forget()
        if planned.changes:
            recap.write(cluster.deployments, kept_as)  # what stays of a deployment that is killed
        try:
            whole = deployment.carry_out(
                {phase: planned.plans[phase] for phase in request.phases}, request.phases
            )
        except BaseException:
            deployment.finish().write(cluster.deployments, kept_as)
            raise
    if recap.changed and whole:
        _verify(fleet, planned, deployment, request.phases)
    if whole and "services" in request.phases:
        remaining_nodes = set(request.names) - set(recap.failures)
        for failure in unreachable(inventory, fleet, remaining_nodes, recap.failures):
            deployment.lose(failure)
        reason = too_few(cluster.inventory, recap.failures)
        if reason:
            recap.notes.append(f"no job can run: {reason}")
    recap.complete = whole and not recap.notes and not inventory.unproven
    path = deployment.finish().write(cluster.deployments, kept_as)
    return Result(recap, planned, whole, path)


def _verify(
    fleet: Fleet, planned: DeploymentPlan, deployment: "PlanRunner", phases: Sequence[str]
) -> None:
    """Look again: a change that is still needed has not worked, whatever its exit code said."""
    names = [name for name in planned.survey.facts if name not in deployment.recap.failures]
    answers = survey(fleet, planned.desired.ask, names)
    for failure in answers.lost.values():
        deployment.lose(failure)
    again = plan(planned.desired, answers.facts)
    for phase in phases:
        for name, changes in again[phase].items():
            if changes and name in planned.plans[phase]:
                details = "; ".join(
                    f"{change.action} {change.kind} {change.subject}: {change.detail}"
                    for change in changes
                )
                hint = "run it again; if it stays so, something on the node changes it back"
                what = "still to change after it was done"
                deployment.lose(StepFailure(name, "verify", what, (details,), hint))


class PlanRunner:
    """Carries out plans. A node that fails a step leaves the run; the others stay."""

    def __init__(
        self,
        fleet: Fleet,
        desired: Desired,
        recap: Recap,
        progress: DeploymentDisplay,
        begun: float | None = None,
    ) -> None:
        """`begun`: when the command began, by the monotonic clock; now without it."""
        self._fleet = fleet
        self._desired = desired
        self.recap = recap
        self._progress = progress
        self._telling = threading.Lock()
        if begun is None:
            self._begun = time.monotonic()
        else:
            self._begun = begun

    def lose(self, failure: StepFailure) -> None:
        """Take a node out of the run."""
        with self._telling:
            self.recap.failures.setdefault(failure.node, failure)
        self._progress.line(failure.node, failure.line.removeprefix(f"{failure.node}: "))

    def carry_out(self, plans: Plans, phases: Sequence[str] = PHASES) -> bool:
        """Run the phases in order; return False when too few nodes are left to start roles on."""
        for phase in phases:
            if phase == "services":
                reason = too_few(self._desired.inventory, self.recap.failures)
                if reason:
                    self.recap.notes.append(f"roles were not started: {reason}")
                    return False
            self._phase(phase, plans.get(phase, {}))
            if (
                phase in ("storage", "publish", "mounts")
                and self._desired.publisher in self.recap.failures
            ):
                publisher = self._desired.publisher
                self.recap.notes.append(
                    f"stopped after {phase}: nothing can be shared without {publisher}"
                )
                return False
        return True

    def finish(self) -> Recap:
        """Return the recap, with the time since the command began."""
        self.recap.seconds = time.monotonic() - self._begun
        return self.recap

    def _phase(self, phase: str, plans: Mapping[str, Sequence[Change]]) -> None:
        names = [
            name for name, changes in plans.items() if changes and name not in self.recap.failures
        ]

        def work(node: Connector) -> None:
            def done(change: Change, seconds: float) -> None:
                with self._telling:
                    self.recap.add(node.name, phase, 1, seconds)
                self._progress.line(
                    node.name, f"{change.action} {change.kind} {change.subject} ({seconds:.1f} s)"
                )

            apply(node, phase, plans[node.name], done, self._progress)

        in_turn = phase == "service"  # so that clients find a service at any time
        for turn in [[name] for name in names] if in_turn else [names]:
            if in_turn and (lost := [name for name in names if name in self.recap.failures]):
                reason = f"{lost[0]} is not ready"
                hint = "`fab deploy start --retry` takes these nodes again"
                self.lose(StepFailure(turn[0], phase, "wait for its turn", (reason,), hint))
                continue
            errors = split_errors(self._fleet.each(work, turn))[1]
            for name, error in errors.items():
                self.lose(failure_of(name, error))


def minimum_workers(inventory: "Inventory") -> int:
    """Workers that must be left: what the inventory says, or half of them, rounded up."""
    configured = inventory.deployment.minimum_workers
    if configured is None:
        return (len(inventory.of_role("worker")) + 1) // 2
    return configured


def too_few(inventory: "Inventory", lost: Collection[str]) -> str:
    """Return why no roles may start without the nodes `lost`; empty when they may.

    Every parameter server holds a part of the parameters, the coordinator runs the jobs, and
    without the storage server no worker has the windows; of the workers some may be missing.
    """
    reasons = [
        f"{task.name} is on {task.node}"
        for task in inventory.tasks()
        if task.role in ("ps", "coordinator") and task.node in lost
    ]
    storage = inventory.storage
    if storage is not None and storage.server in lost:
        reasons.append(f"{storage.server} is the storage server")
    workers = inventory.of_role("worker")
    remaining_workers = sum(task.node not in lost for task in workers)
    needed = minimum_workers(inventory)
    if remaining_workers < needed:
        reasons.append(
            f"{remaining_workers} of {len(workers)} workers are left, {needed} are needed"
            " (`deployment.minimum_workers`)"
        )
    return "; ".join(reasons)
