"""What the machines of a cluster have to be: the inventory as the resources of all subjects.

Its decisions are pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from core.ground.errors import ClusterError
from core.logs import terminal
from deploy.cluster.cluster import address_lines, with_confirmed_addresses
from deploy.cluster.connector import Connector
from deploy.cluster.fleet import Fleet, Local
from deploy.converge.card import clones
from deploy.converge.change import Resource
from deploy.converge.check import Finding, data_of
from deploy.converge.code import prune, prune_wheels
from deploy.converge.control_keys import token_of
from deploy.converge.deployment import PHASES, DeploymentRequest, Desired, Say
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.memory_estimate import of_inventory
from deploy.converge.preflight import examine
from deploy.converge.publication import Publication, of_wheelhouse, room_needed
from deploy.converge.reachability import found_unreached
from deploy.converge.subject import DRIFT, DeploymentSpec, NodeSpec
from deploy.converge.subjects import SUBJECTS
from deploy.converge.survey import Survey, machine_facts, survey
from deploy.release.wheelhouse import Wheelhouse, make_wheelhouse
from deploy.render import units


@dataclass(frozen=True)
class Machines(DeploymentSpec, Desired):
    """`Desired` for machines over SSH.

    It refuses nothing: systemd stops what the inventory does not have, so that every start makes
    sense.
    """

    def ask(self, node: Connector) -> MachineFacts:
        """Ask a machine the questions of all subjects."""
        return machine_facts(node, self.questions(node.name))

    def asked(self, names: Sequence[str], phases: Sequence[str]) -> tuple[str, ...]:
        """Ask the publisher too before mounts: the storage server has to know a new node first."""
        if "mounts" in phases:
            return tuple(dict.fromkeys((*names, self.publisher)))
        return tuple(names)

    def confirmed(self, seen: Survey[MachineFacts]) -> Self:
        """Return this with the addresses that the nodes say they have, each with its own key."""
        own = {
            name: [one for some in facts.addresses.values() for one in some]
            for name, facts in seen.facts.items()
        }
        return replace(self, inventory=with_confirmed_addresses(self.inventory, own))

    def said(self, before: Desired, seen: Survey[MachineFacts]) -> tuple[str, ...]:
        """Return the lines about names, and about nodes that the others do not let in."""
        return address_lines(before.inventory, self.inventory, seen.facts)

    def findings(self, seen: Survey[MachineFacts]) -> tuple[Finding, ...]:
        """Examine every node that answered; one that is lost is a finding."""
        memory = of_inventory(
            self.inventory, {name: facts.cores for name, facts in seen.facts.items()}
        )
        found: dict[str, tuple[Finding, ...]] = {}
        for name, failure in seen.lost.items():
            found[name] = (Finding("problem", f"{name} connection", failure.last_lines[0], name),)
        needed: set[str] = set()
        # The publisher last: it has to take what the fit nodes will install.
        for name, facts in sorted(seen.facts.items(), key=lambda one: one[0] == self.publisher):
            environment = self.environment(name, facts)
            if environment is None or environment in facts.environments:
                lacks = set()
            else:
                lacks = {environment}
            publishes_bytes = 0
            if name == self.publisher:
                publishes_bytes = room_needed(
                    self.publications, needed | lacks, facts.published, self.folders
                )
            key = self._pinned_key(name)
            one = NodeSpec(self.inventory, name, memory, environment, publishes_bytes, key)
            found[name] = examine(one, facts)
            if not any(finding.level == "problem" for finding in found[name]):
                needed |= lacks
        for name, lines in clones(seen.facts).items():
            found[name] = (
                *found[name],
                *(Finding("warning", f"{name} identity", line, name) for line in lines),
            )
        return tuple(
            finding for node in self.inventory.nodes for finding in found.get(node.name, ())
        )

    def drifts(self, seen: Survey[MachineFacts]) -> tuple[Finding, ...]:
        """Return a line for each node that was deployed and that a start would change."""
        due = {
            name: self._due(name, facts)
            for name, facts in seen.facts.items()
            if facts.current is not None
        }
        return tuple(
            Finding(
                "warning",
                f"{name} {DRIFT}",
                f"{len(changes)} not as the inventory wants: {'; '.join(changes[:3])}:"
                " `fab deploy start` mends it",
                name,
            )
            for name, changes in due.items()
            if changes
        )

    def _due(self, node: str, facts: MachineFacts) -> list[str]:
        """Return the changes, but for roles that are not ready: that is their state.

        Another release than the one here may be right.
        """
        code = self.release.code
        release = replace(self.release, code=replace(code, key=facts.current or ""))
        roles = {units.MONITOR_UNIT, units.SERVICE_UNIT, *map(units.unit_name, self.tasks(node))}
        return [
            f"{change.action} {change.kind} {change.subject} ({change.detail})"
            for phase in PHASES
            if phase != "code" or facts.current == code.key
            for resource in replace(self, release=release).phase(phase, node, facts)
            for change in resource.changes(facts)
            if change.action != "start" or change.subject not in roles
        ]

    def check(self, fleet: Fleet) -> tuple[Finding, ...]:
        """Look at the nodes, and for the recordings on this machine."""
        seen = survey(fleet, self.ask)
        now = self.confirmed(seen)
        found = (
            *now.findings(seen),
            *now.drifts(seen),
            *(Finding("warning", "addresses", line) for line in now.said(self, seen)),
            *found_unreached(now.inventory, fleet, seen.facts, seen.lost),
        )
        if not any(job in ("train", "cv", "evaluate") for job in self.inventory.jobs.order):
            return found
        data = data_of(self.inventory, Local("this machine"))
        return (*found, Finding("ok" if data.holds else "problem", "data", data.line))

    def supplied(
        self, fit: Mapping[str, MachineFacts], request: DeploymentRequest, update: Say
    ) -> Self:
        """Download wheels that a node needs and the cache lacks, and prepare recordings.

        The cluster's token is the one that its coordinator's node has, or a new one.
        """
        publications: list[Publication] = []
        wheelhouses: dict[str, Wheelhouse] = {}
        if fit and {"publish", "code"} & {*request.phases}:
            missing = {
                (
                    facts.python_version or "",
                    facts.machine,
                    self.release.packages_for(facts, serves=self.recognises(name)),
                )
                for name, facts in fit.items()
                if self.environment(name, facts) not in facts.environments
            }
            for python, machine, packages in sorted(missing):
                update(
                    f"packages for Python {python} on {machine}: downloading what the cache lacks"
                )
                wheelhouse = make_wheelhouse(
                    packages, python, machine, say=lambda line: terminal.say(line, error=True)
                )
                wheelhouses[wheelhouse.key] = wheelhouse
                publications.append(of_wheelhouse(wheelhouse))
        if request.publications is not None:
            update("preparing the recordings, if they are not yet")
            publications += request.publications()
        return replace(
            self,
            publications=tuple(publications),
            wheelhouses=wheelhouses,
            token=token_of(self.inventory, fit),
            takes_part=frozenset(fit),
        )

    def _pinned_key(self, node: str) -> str | None:
        if self.keys is None or node in self.keys.replaced:
            return None
        return self.keys.known.get(node)

    def tidy(self, fleet: Fleet, seen: Survey[MachineFacts], names: Sequence[str]) -> list[str]:
        """Remove old releases, environments and wheels."""
        done = prune(fleet, names, self.inventory.deployment.keep_releases)
        problems = [str(result) for result in done.values() if isinstance(result, ClusterError)]
        if {*names} != {
            node.name for node in self.inventory.nodes
        }:  # the others' needs are unknown
            return problems
        needed = {key for facts in seen.facts.values() for key in facts.environments}
        named = {self.environment(name, facts) for name, facts in seen.facts.items()}
        needed |= {key for key in named if key is not None}
        try:
            prune_wheels(fleet.nodes[self.publisher], self.folders, needed)
        except ClusterError as error:
            problems.append(str(error))
        return problems

    def questions(self, node: str) -> Questions:
        """What to ask of a node."""
        asked = Questions()
        for subject in SUBJECTS:
            asked = asked.and_those(subject.questions(self, node))
        return asked

    def phase(self, phase: str, node: str, facts: MachineFacts) -> Sequence[Resource]:
        """The resources of one phase on one node, in order."""
        found: list[Resource] = []
        for subject in SUBJECTS:
            if subject.phase == phase:
                found += subject.resources(self, node, facts)
        return found
