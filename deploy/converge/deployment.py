"""A deployment from facts to recap: look, plan, carry out, verify. One program for every kind of cluster."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import ClusterError
from deploy.cluster.cluster import Cluster
from deploy.cluster.connector import Connector
from deploy.cluster.fleet import Fleet
from deploy.cluster.selection import kept_tasks
from deploy.converge.apply import StepFailedError, StepFailure, apply
from deploy.converge.change import Change, DeploymentDisplay, Resource
from deploy.converge.check import Finding
from deploy.converge.publication import Publication
from deploy.converge.recap import Recap
from deploy.converge.rollback_plan import UnfinishedRollback
from deploy.converge.survey import Survey, failure_of, survey

if TYPE_CHECKING:
    from cluster.inventory import Inventory

PHASES = ("prepare", "storage", "mounts", "publish", "code", "firewall", "services", "monitor", "service")
"""Each ends on all nodes before the next begins: a mount needs its server, an installation its wheels."""
PUSH_PHASES = ("prepare", "mounts", "publish", "code")
STORAGE_PHASES = ("prepare", "storage", "mounts", "publish")
MONITOR_PHASES = ("prepare", "firewall", "monitor")
START_KINDS = frozenset({"unit", "link", "role"})
"""Kinds of change after which a start runs the inventory's jobs."""

LOOKING = "looking at the nodes"
Plans = Mapping[str, Mapping[str, Sequence[Change]]]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Order:
    """What one command asks for. `publications` prepares the windows of the jobs; None where no job needs any."""

    action: str
    names: tuple[str, ...]
    phases: tuple[str, ...] = PHASES
    publications: Callable[[], Sequence[Publication]] | None = None


class Desired(ABC):
    """What the nodes of one cluster have to be: `Machines` and `ThisMachine` differ in their facts and resources."""

    inventory: "Inventory"

    @property
    def publisher(self) -> str:
        """The node that shares folders with all others; empty where none are shared."""
        return ""

    @abstractmethod
    def ask(self, node: Connector) -> Any:
        """The facts of one node. Raises ClusterError."""

    def asked(self, names: Sequence[str], phases: Sequence[str]) -> tuple[str, ...]:
        """The nodes to look at for these."""
        return tuple(names)

    @abstractmethod
    def check(self, fleet: Fleet) -> tuple[Finding, ...]:
        """Everything that would make a start fail, and what else is worth knowing."""

    def findings(self, seen: Survey[Any]) -> tuple[Finding, ...]:
        """What a deployment has to know before it plans; a problem keeps its node out of the run."""
        return ()

    def refuse(self, seen: Survey[Any]) -> None:  # noqa: B027  most refuse nothing
        """Raise ClusterError where a start would make a cluster that no inventory describes."""

    def supplied(self, fit: Mapping[str, Any], order: Order, update: Say) -> "Desired":
        """The same with everything that the nodes will need for the order; `update` gets what takes time."""
        return self

    @abstractmethod
    def phase(self, phase: str, node: str, facts: Any) -> Sequence[Resource]:
        """The resources of one phase on one node, in order; empty where the phase means nothing there."""

    def tidy(self, fleet: Fleet, seen: Survey[Any], names: Sequence[str]) -> list[str]:
        """Remove what no node needs any more after a deployment that worked; the problems, which stop no job."""
        return []


@dataclass(frozen=True)
class Outlook:
    """What was found before anything is changed, and what would be changed."""

    desired: Desired
    survey: Survey[Any]
    unfit: Mapping[str, StepFailure]
    plans: Plans

    @property
    def changes(self) -> int:
        """How many changes the plans hold."""
        return sum(len(changes) for phase in self.plans.values() for changes in phase.values())

    @property
    def counts_as_start(self) -> bool:
        """Whether the jobs run after it: a unit, a link or a role changes."""
        return any(
            change.kind in START_KINDS
            for phase in self.plans.values()
            for changes in phase.values()
            for change in changes
        )


@dataclass(frozen=True)
class Result:
    """A deployment that ended; not `whole` when it stopped before the last phase."""

    recap: Recap
    outlook: Outlook
    whole: bool
    path: Path
    """Of the recap."""


def look(fleet: Fleet, desired: Desired, order: Order, update: Say) -> Outlook:
    """Survey and plan. `update` gets what takes time."""
    seen = survey(fleet, desired.ask, desired.asked(order.names, order.phases))
    unfit = dict(seen.lost)
    for one in desired.findings(seen):
        if one.level == "problem" and one.node not in unfit:
            unfit[one.node] = StepFailure(one.node, "facts", one.topic, "", None, (one.line,), "")
    fit = {name: facts for name, facts in seen.facts.items() if name not in unfit}
    desired = desired.supplied(fit, order, update)
    plans = plan(desired, fit)
    if desired.publisher not in order.names:
        for phase in set(PHASES) - set(STORAGE_PHASES):
            plans[phase].pop(desired.publisher, None)
    return Outlook(desired, seen, unfit, plans)


def plan(desired: Desired, facts: Mapping[str, Any]) -> dict[str, dict[str, tuple[Change, ...]]]:
    """The changes by phase and node; pure."""
    return {
        phase: {
            name: tuple(change for resource in desired.phase(phase, name, seen) for change in resource.changes(seen))
            for name, seen in facts.items()
        }
        for phase in PHASES
    }


def converge(
    cluster: Cluster, fleet: Fleet, desired: Desired, order: Order, progress: DeploymentDisplay,
    before: Callable[[Outlook], None] = lambda outlook: None,
) -> Result:  # fmt: skip
    """Bring the nodes to what the inventory says, and write the recap.

    `before` is called before the first change, if there may be one. Raises what `Desired.refuse` raises.
    """
    recap = Recap(order.action, cluster.inventory.cluster, desired.asked(order.names, order.phases), order.names)
    kept_as = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{order.action}"
    begun = time.monotonic()
    progress.line("", LOOKING)
    outlook = look(fleet, desired, order, lambda words: progress.line("", words))
    desired.refuse(outlook.survey)
    deployment = PlanRunner(fleet, outlook.desired, recap, progress, begun)
    for failure in outlook.unfit.values():
        deployment.lose(failure)
    reason = too_few(cluster.inventory, recap.failures)
    whole = False
    if reason:
        recap.notes.append(f"nothing was changed: {reason}")
    else:
        before(outlook)
        if "code" in order.phases:
            UnfinishedRollback.of(cluster).forget()
        if outlook.changes:
            recap.write(cluster.deployments, kept_as)  # what stays of a deployment that is killed
        try:
            whole = deployment.carry_out({phase: outlook.plans[phase] for phase in order.phases}, order.phases)
        except BaseException:
            deployment.finish().write(cluster.deployments, kept_as)
            raise
    if recap.changed and whole:
        _verify(fleet, outlook, deployment, order.phases)
    if whole and "services" in order.phases:
        for failure in unreachable(cluster.inventory, fleet, set(order.names) - set(recap.failures)):
            deployment.lose(failure)
        reason = too_few(cluster.inventory, recap.failures)
        if reason:
            recap.notes.append(f"no job can run: {reason}")
    recap.complete = whole and not recap.notes
    path = deployment.finish().write(cluster.deployments, kept_as)
    return Result(recap, outlook, whole, path)


def _verify(fleet: Fleet, outlook: Outlook, deployment: "PlanRunner", phases: Sequence[str]) -> None:
    """Look again: a change that is still needed has not worked, whatever its exit code said."""
    names = [name for name in outlook.survey.facts if name not in deployment.recap.failures]
    seen = survey(fleet, outlook.desired.ask, names)
    for failure in seen.lost.values():
        deployment.lose(failure)
    again = plan(outlook.desired, seen.facts)
    for phase in phases:
        for name, changes in again[phase].items():
            if changes and name in outlook.plans[phase]:
                words = "; ".join(
                    f"{change.action} {change.kind} {change.subject}: {change.detail}" for change in changes
                )
                hint = "run it again; if it stays so, something on the node changes it back"
                what = "still to change after it was done"
                deployment.lose(StepFailure(name, "verify", what, "", None, (words,), hint))


class PlanRunner:
    """Carries out plans. A node that fails a step leaves the run; the others stay."""

    def __init__(
        self, fleet: Fleet, desired: Desired, recap: Recap, progress: DeploymentDisplay, begun: float | None = None
    ) -> None:
        """`begun`: when the command began, by the monotonic clock; now without it."""
        self._fleet = fleet
        self._desired = desired
        self.recap = recap
        self._progress = progress
        self._telling = threading.Lock()
        self._begun = time.monotonic() if begun is None else begun

    def lose(self, failure: StepFailure) -> None:
        """A node leaves the run."""
        with self._telling:
            self.recap.failures.setdefault(failure.node, failure)
        self._progress.line(failure.node, failure.line.removeprefix(f"{failure.node}: "))

    def carry_out(self, plans: Plans, phases: Sequence[str] = PHASES) -> bool:
        """The phases in order; False when too few nodes were left to start roles on."""
        for phase in phases:
            if phase == "services":
                reason = too_few(self._desired.inventory, self.recap.failures)
                if reason:
                    self.recap.notes.append(f"roles were not started: {reason}")
                    return False
            self._phase(phase, plans.get(phase, {}))
            if phase in ("storage", "publish", "mounts") and self._desired.publisher in self.recap.failures:
                publisher = self._desired.publisher
                self.recap.notes.append(f"stopped after {phase}: nothing can be shared without {publisher}")
                return False
        return True

    def finish(self) -> Recap:
        """The recap, with the time since the command began."""
        self.recap.seconds = time.monotonic() - self._begun
        return self.recap

    def _phase(self, phase: str, plans: Mapping[str, Sequence[Change]]) -> None:
        names = [name for name, changes in plans.items() if changes and name not in self.recap.failures]

        def work(node: Connector) -> None:
            def done(change: Change, seconds: float) -> None:
                with self._telling:
                    self.recap.add(node.name, phase, 1, seconds)
                self._progress.line(node.name, f"{change.action} {change.kind} {change.subject} ({seconds:.1f} s)")

            apply(node, phase, plans[node.name], done, self._progress)

        in_turn = phase == "service"  # so that clients find a service at any time
        for turn in [[name] for name in names] if in_turn else [names]:
            if in_turn and (lost := [name for name in names if name in self.recap.failures]):
                words = f"{lost[0]} is not ready"
                hint = "`fab deploy start --retry` takes these nodes again"
                self.lose(StepFailure(turn[0], phase, "wait for its turn", "", None, (words,), hint))
                continue
            for name, result in self._fleet.each(work, turn).items():
                if isinstance(result, ClusterError):
                    self.lose(result.record if isinstance(result, StepFailedError) else failure_of(name, result))


def minimum_workers(inventory: "Inventory") -> int:
    """Workers that must be left: what the inventory says, or half of them, rounded up."""
    configured = inventory.deployment.minimum_workers
    return (len(inventory.of_role("worker")) + 1) // 2 if configured is None else configured


def too_few(inventory: "Inventory", lost: Collection[str]) -> str:
    """Why no roles may be started without the nodes `lost`, empty when they may.

    Every parameter server holds a part of the parameters, the coordinator runs the jobs, and without the storage server
    no worker has the windows; of the workers some may be missing.
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
    left = sum(task.node not in lost for task in workers)
    needed = minimum_workers(inventory)
    if left < needed:
        reasons.append(f"{left} of {len(workers)} workers are left, {needed} are needed (`deployment.minimum_workers`)")
    return "; ".join(reasons)


_PROBE = """\
import socket, sys
from concurrent.futures import ThreadPoolExecutor
def probe(word):
    name, host, port = word.split(",")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        return f"{name} {error}"
print("\\n".join(line for line in ThreadPoolExecutor(16).map(probe, sys.argv[1:]) if line))
"""
_PROBE_SECONDS = 60.0


def unreachable(inventory: "Inventory", fleet: Fleet, names: Collection[str]) -> list[StepFailure]:
    """The roles on nodes `names` whose TensorFlow port does not answer the coordinator's node."""
    coordinator = inventory.of_role("coordinator")[0].node
    if coordinator not in names:
        return []
    tasks = [task for task in kept_tasks(inventory) if task.node in names]
    words = [f"{task.name},{task.host},{task.port}" for task in tasks]
    node = fleet.nodes[coordinator]
    try:
        # The firewall lets the service account and root through, and not the account that logged in.
        outcome = node.run(["python3", "-", *words], stdin=_PROBE.encode(), deadline_seconds=_PROBE_SECONDS, root=True)
    except ClusterError as error:
        return [StepFailure(coordinator, "verify", "reach the roles", "", None, (str(error),), "")]
    if not outcome.ok:
        hint = f"`fab deploy ssh --node {coordinator}` looks at it by hand"
        command, code, said = "python3 - ...", outcome.return_code, outcome.last_lines
        return [StepFailure(coordinator, "verify", "reach the roles", command, code, said, hint)]
    of_name = {task.name: task for task in tasks}
    made = []
    for line in outcome.text.splitlines():
        name, _, what = line.partition(" ")
        if name not in of_name:  # a start file of the account printed it
            continue
        task = of_name[name]
        unreached = f"{coordinator} does not reach {name} at {task.address}: {what}"
        hint = "look at the cable, the switch and the node's own firewall"
        made.append(StepFailure(task.node, "verify", "reach the roles", "", None, (unreached,), hint))
    return made
