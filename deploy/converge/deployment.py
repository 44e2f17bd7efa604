"""A deployment from facts to recap: the effects around pure plans, on all nodes at once."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.errors import ClusterError
from deploy.cluster.connection import NodeConnection
from deploy.cluster.fleet import Fleet
from deploy.converge import quorum
from deploy.converge.apply import StepFailedError, StepFailure, apply
from deploy.converge.change import Change
from deploy.converge.check import Finding
from deploy.converge.desired import PHASES, Wish
from deploy.converge.fact_reader import read_facts
from deploy.converge.fact_script import fact_script
from deploy.converge.machine_facts import MachineFacts
from deploy.converge.memory_estimate import RoleMemory
from deploy.converge.preflight import NodeWish, examine
from deploy.converge.publication import room_needed
from deploy.converge.recap import Recap

FACTS_SECONDS = 90.0
"""For one question; a Pi 3 that is busy training answers within ten."""

_NOT_FOUND = 127
"""A shell's exit code for a command that is not there."""

Event = Callable[[str, str], None]
"""Told of a node and a line about it, from any thread."""


@dataclass(frozen=True)
class Survey:
    """What the nodes answered; `lost` has the failure of those that did not."""

    facts: Mapping[str, MachineFacts]
    lost: Mapping[str, StepFailure]


def survey(fleet: Fleet, wish: Wish, names: Sequence[str] | None = None) -> Survey:
    """Ask every node (of `names`) at once."""
    found = fleet.each(lambda node: ask(node, wish), names)
    facts = {name: answer for name, answer in found.items() if isinstance(answer, MachineFacts)}
    lost = {name: _lost(name, error) for name, error in found.items() if isinstance(error, ClusterError)}
    return Survey(facts, lost)


def ask(node: NodeConnection, wish: Wish) -> MachineFacts:
    """The facts of one node. Raises ClusterError, naming sudo when that is what is missing."""
    node.open()
    asked = time.time()
    script = fact_script(wish.questions(node.name)).encode()
    outcome = node.run(["sh", "-s"], stdin=script, root=True, deadline_seconds=FACTS_SECONDS)
    answered = time.time()
    if "section" not in outcome.text and "@@" not in outcome.text and not outcome.ok:
        said = " ".join(outcome.last_lines)
        if outcome.return_code == _NOT_FOUND and "sudo" in said:
            raise ClusterError(f"{node.name}: there is no sudo ({said}): `su -c 'apt-get install sudo'` there")
        if "sudo" in said:
            user = node.address.user
            file = f"010_{user.replace('.', '_')}-nopasswd"  # sudo ignores names with a dot
            raise ClusterError(
                f"{node.name}: {user} may not use sudo without a password ({said}): "
                f"`echo '{user} ALL=(ALL) NOPASSWD: ALL' | sudo tee /etc/sudoers.d/{file}` there"
            )
        raise ClusterError(
            f"{node.name}: it cannot say what it is (exit code {outcome.return_code}): {said}; "
            f"`fab deploy ssh --node {node.name}` looks at it by hand"
        )
    return read_facts(outcome.text, asked, answered)


def _lost(name: str, error: ClusterError) -> StepFailure:
    if isinstance(error, StepFailedError):
        return error.record
    said = str(error).removeprefix(name).lstrip(": ")
    return StepFailure(name, "facts", "look at the node", "", None, (said,), "")


def findings(wish: Wish, survey: Survey, memory: RoleMemory) -> tuple[Finding, ...]:
    """Everything that would make a start fail, and what else is worth knowing, node by node."""
    found: dict[str, tuple[Finding, ...]] = {}
    for name, failure in survey.lost.items():
        found[name] = (Finding("problem", f"{name} connection", failure.last_lines[0], name),)
    needed: set[str] = set()
    # The publisher last: it has to take what those that are fit will install.
    for name, facts in sorted(survey.facts.items(), key=lambda one: one[0] == wish.publisher):
        environment = wish.release.environment_for(facts)
        lacks = set() if environment is None or environment in facts.environments else {environment}
        publishes_bytes = 0
        if name == wish.publisher:
            publishes_bytes = room_needed(wish.publications, needed | lacks, facts.published, wish.folders)
        one = NodeWish.of(wish.inventory, name, memory, environment, publishes_bytes)
        found[name] = examine(one, facts)
        if not any(finding.level == "problem" for finding in found[name]):
            needed |= lacks
    return tuple(finding for node in wish.inventory.nodes for finding in found.get(node.name, ()))


def plan(wish: Wish, facts: Mapping[str, MachineFacts]) -> dict[str, dict[str, tuple[Change, ...]]]:
    """The changes by phase and node; pure."""
    return {
        phase: {
            name: tuple(change for resource in wish.phase(phase, name, seen) for change in resource.changes(seen))
            for name, seen in facts.items()
        }
        for phase in PHASES
    }


class Deployment:
    """Carries out plans; a node that fails a step leaves the run, and the others go on."""

    def __init__(self, fleet: Fleet, wish: Wish, recap: Recap, event: Event, begun: float | None = None) -> None:
        """`begun`: when it all began, by the monotonic clock; now without it."""
        self._fleet = fleet
        self._wish = wish
        self.recap = recap
        self._event = event
        self._telling = threading.Lock()
        self._begun = time.monotonic() if begun is None else begun

    def lose(self, failure: StepFailure) -> None:
        """A node leaves the run."""
        with self._telling:
            self.recap.failures.setdefault(failure.node, failure)
        self._event(failure.node, failure.line.removeprefix(f"{failure.node}: "))

    def carry_out(self, plans: Mapping[str, Mapping[str, Sequence[Change]]], phases: Sequence[str] = PHASES) -> bool:
        """The phases in order; False when too few nodes were left to start roles on."""
        for phase in phases:
            if phase == "services":
                reason = quorum.missing(self._wish.inventory, self.recap.failures)
                if reason:
                    self.recap.notes.append(f"roles were not started: {reason}")
                    return False
            self._phase(phase, plans.get(phase, {}))
            if phase in ("storage", "publish", "mounts") and self._wish.publisher in self.recap.failures:
                self.recap.notes.append(f"stopped after {phase}: nothing can be shared without {self._wish.publisher}")
                return False
        return True

    def finish(self) -> Recap:
        """The recap, with the time it all took."""
        self.recap.seconds = time.monotonic() - self._begun
        return self.recap

    def _phase(self, phase: str, plans: Mapping[str, Sequence[Change]]) -> None:
        names = [name for name, changes in plans.items() if changes and name not in self.recap.failures]

        def work(node: NodeConnection) -> None:
            def done(change: Change, seconds: float) -> None:
                with self._telling:
                    self.recap.add(node.name, phase, 1, seconds)
                self._event(node.name, f"{change.action} {change.kind} {change.subject} ({seconds:.1f} s)")

            apply(node, phase, plans[node.name], done)

        results: dict[str, Any] = self._fleet.each(work, names)
        for name, result in results.items():
            if isinstance(result, ClusterError):
                self.lose(_lost(name, result) if not isinstance(result, StepFailedError) else result.record)
