"""What the machines of a cluster have to be: the inventory as the resources of all subjects.

Its decisions are pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from core.ground.errors import ClusterError
from core.logs import say
from deploy.cluster import proven
from deploy.cluster.connector import Connector
from deploy.cluster.fleet import Fleet
from deploy.cluster.local import Local
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

    def confirmed(self, answers: Survey[MachineFacts]) -> Self:
        """Return this with the addresses that the nodes say they have, each with its own key."""
        addresses = {
            name: [
                address
                for interface_addresses in facts.addresses.values()
                for address in interface_addresses
            ]
            for name, facts in answers.facts.items()
        }
        return replace(self, inventory=proven.confirmed(self.inventory, addresses))

    def said(self, before: Desired, answers: Survey[MachineFacts]) -> tuple[str, ...]:
        """Return the lines about names, and about nodes that the others do not let in."""
        return proven.said(before.inventory, self.inventory, answers.facts)

    def findings(self, answers: Survey[MachineFacts]) -> tuple[Finding, ...]:
        """Examine every node that answered; one that is lost is a finding."""
        memory = of_inventory(
            self.inventory, {name: facts.cores for name, facts in answers.facts.items()}
        )
        findings_by_node: dict[str, tuple[Finding, ...]] = {}
        for name, failure in answers.lost.items():
            findings_by_node[name] = (
                Finding("problem", f"{name} connection", failure.last_lines[0], name),
            )
        needed: set[str] = set()
        # The publisher last: it has to take what the fit nodes will install.
        for name, facts in sorted(
            answers.facts.items(), key=lambda entry: entry[0] == self.publisher
        ):
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
            spec = NodeSpec(self.inventory, name, memory, environment, publishes_bytes, key)
            findings_by_node[name] = examine(spec, facts)
            if not any(finding.level == "problem" for finding in findings_by_node[name]):
                needed |= lacks
        for name, lines in clones(answers.facts).items():
            findings_by_node[name] = (
                *findings_by_node[name],
                *(Finding("warning", f"{name} identity", line, name) for line in lines),
            )
        return tuple(
            finding
            for node in self.inventory.nodes
            for finding in findings_by_node.get(node.name, ())
        )

    def drifts(self, answers: Survey[MachineFacts]) -> tuple[Finding, ...]:
        """Return a line for each node that was deployed and that a start would change."""
        due = {
            name: self._due(name, facts)
            for name, facts in answers.facts.items()
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
        answers = survey(fleet, self.ask)
        now = self.confirmed(answers)
        findings = (
            *now.findings(answers),
            *now.drifts(answers),
            *(Finding("warning", "addresses", line) for line in now.said(self, answers)),
            *found_unreached(now.inventory, fleet, answers.facts, answers.lost),
        )
        if not any(job in ("train", "cv", "evaluate") for job in self.inventory.jobs.order):
            return findings
        data = data_of(self.inventory, Local("this machine"))
        return (*findings, Finding("ok" if data.holds else "problem", "data", data.line))

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
                    packages, python, machine, say=lambda line: say(line, error=True)
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

    def tidy(self, fleet: Fleet, answers: Survey[MachineFacts], names: Sequence[str]) -> list[str]:
        """Remove old releases, environments and wheels."""
        done = prune(fleet, names, self.inventory.deployment.keep_releases)
        problems = [str(result) for result in done.values() if isinstance(result, ClusterError)]
        if {*names} != {
            node.name for node in self.inventory.nodes
        }:  # the others' needs are unknown
            return problems
        needed = {key for facts in answers.facts.values() for key in facts.environments}
        named = {self.environment(name, facts) for name, facts in answers.facts.items()}
        needed |= {key for key in named if key is not None}
        try:
            prune_wheels(fleet.nodes[self.publisher], self.folders, needed)
        except ClusterError as error:
            problems.append(str(error))
        return problems

    def questions(self, node: str) -> Questions:
        """Return what to ask of a node."""
        node_questions = Questions()
        for subject in SUBJECTS:
            node_questions = node_questions.and_those(subject.questions(self, node))
        return node_questions

    def phase(self, phase: str, node: str, facts: MachineFacts) -> Sequence[Resource]:
        """The resources of one phase on one node, in order."""
        resources: list[Resource] = []
        for subject in SUBJECTS:
            if subject.phase == phase:
                resources += subject.resources(self, node, facts)
        return resources
