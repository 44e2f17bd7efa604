"""What the machines of a cluster have to be: the plans of all subjects.

`examine` has everything about one node that would make a `start` fail there, with what to do about
it. The decisions are pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from core.ground.errors import ClusterError
from core.logs import say
from deploy.cluster.cluster import address_lines
from deploy.cluster.connector import Connector
from deploy.cluster.fleet import Fleet, Local, split_errors
from deploy.cluster.places import ENVIRONMENTS, publisher, shared_folders
from deploy.converge.apply import Survey, survey
from deploy.converge.check import MACHINES, Finding, data_of
from deploy.converge.code import prune, prune_wheels
from deploy.converge.deployment import PHASES, DeploymentRequest, Desired, Say
from deploy.converge.hardware import board_findings, clones, has_gpu, memory_findings
from deploy.converge.machine_facts import MEGABYTE, MachineFacts, Questions, Texts, memory_of_roles
from deploy.converge.monitor import token_of
from deploy.converge.publication import Publication, of_wheelhouse, room_needed
from deploy.converge.reachability import found_unreached
from deploy.converge.subject import DRIFT, Changes, DeploymentSpec, Found
from deploy.converge.subjects import SUBJECTS
from deploy.converge.survey import PUBLISHED_SECONDS, machine_facts
from deploy.release.requirements import PYTHONS
from deploy.release.wheelhouse import Wheelhouse, make_wheelhouse
from deploy.render import units

ENVIRONMENT_BYTES = 2_800 * MEGABYTE
"""Free space for an environment: 1.7 GB with its compiled modules, the wheels' copies and
unpacking, some to live."""
CUDA_ENVIRONMENT_BYTES = 12_000 * MEGABYTE
"""Free space for an environment with CUDA's libraries: 3 GB of wheels, twice as much unpacked."""
RELEASE_BYTES = 100 * MEGABYTE


def examine(spec: DeploymentSpec, facts: MachineFacts) -> tuple[Finding, ...]:
    """The findings for one node; a problem keeps it out of the run."""
    findings = [
        *_system(facts),
        *_python(facts),
        *_space(spec, facts),
        *_shared(spec, facts),
        *memory_findings(spec, facts),
        *_network(spec, facts),
        *(finding for subject in SUBJECTS for finding in subject.check(spec, facts)),
        *board_findings(facts),
    ]
    if not any(level == "problem" for level, _, _ in findings):
        what = facts.model or f"{facts.os_id} {facts.os_version}"
        line = (
            f"{what}, {facts.cores} cores, {facts.memory_bytes // MEGABYTE} MB, Python"
            f" {facts.python}"
        )
        findings.insert(0, ("ok", "node", line))
    return tuple(
        Finding(level, f"{spec.name} {subject}", line, spec.name)
        for level, subject, line in findings
    )


def _system(facts: MachineFacts) -> Found:
    if facts.machine not in MACHINES:
        yield (
            "problem",
            "platform",
            f"the processor runs as {facts.machine}, and TensorFlow has wheels for"
            f" {' and '.join(MACHINES)} only: install a 64-bit Raspberry Pi OS on a Pi 3 or"
            " later",
        )
    elif facts.bits != 64:
        yield (
            "problem",
            "platform",
            f"a 64-bit kernel ({facts.machine}) under a {facts.bits}-bit system: TensorFlow"
            " has no 32-bit wheels; install the 64-bit Raspberry Pi OS",
        )
    if facts.os_id not in ("debian", "raspbian", "ubuntu"):
        yield (
            "warning",
            "system",
            f"{facts.os_id or 'unknown'} {facts.os_version}: deployments know apt and"
            " systemd, as Debian, Raspberry Pi OS and Ubuntu have them",
        )


def _python(facts: MachineFacts) -> Found:
    if facts.python is None:
        yield (
            "problem",
            "python",
            "no /usr/bin/python3 that starts: `sudo apt install --reinstall python3` there",
        )
    elif facts.python_version not in PYTHONS:
        yield (
            "problem",
            "python",
            f"/usr/bin/python3 is Python {facts.python}, and TensorFlow 2.21 has wheels for"
            f" {', '.join(PYTHONS)}: use Raspberry Pi OS bookworm (3.11) or trixie (3.13)",
        )
    elif facts.python_bits != 64:
        yield (
            "problem",
            "python",
            f"a {facts.python_bits}-bit Python: TensorFlow has 64-bit wheels only",
        )


def _space(spec: DeploymentSpec, facts: MachineFacts) -> Found:
    installed = spec.environment(facts) in facts.environments
    leftover = facts.leftover_bytes.get(ENVIRONMENTS, 0)
    if installed:
        needed = RELEASE_BYTES
        leftover = 0
    elif has_gpu(facts) and spec.inventory.jobs.train.device.kind == "gpu":
        needed = CUDA_ENVIRONMENT_BYTES
    else:
        needed = ENVIRONMENT_BYTES
    free = facts.disk_free_bytes.get(ENVIRONMENTS, 0) + leftover
    if free < needed:
        yield (
            "problem",
            "disk",
            f"{free // MEGABYTE:,} MB are free below /opt, {needed // MEGABYTE:,} MB are"
            " needed: remove something (`sudo apt clean`), or use a larger card",
        )
    elif shared_folders(spec.inventory).server == spec.name and spec.publishes_bytes:
        yield from _space_of_all(spec, facts, needed, leftover)


def _space_of_all(
    spec: DeploymentSpec, facts: MachineFacts, environment_bytes: int, leftover: int
) -> Found:
    """Check the room for what is published.

    `environment_bytes` are for the node itself, and may have to come from the same disk.
    """
    export = shared_folders(spec.inventory).export
    sent = sum(
        size for folder, size in facts.leftover_bytes.items() if folder.startswith(f"{export}/")
    )
    free = facts.disk_free_bytes.get(export, 0) + sent
    needed = spec.publishes_bytes
    also = ""
    if facts.place(export)[0] == facts.place(ENVIRONMENTS)[0]:
        free = free + leftover
        needed = needed + environment_bytes
        also = " with its own environment on the same disk"
    if free < needed:
        yield (
            "problem",
            "disk",
            f"{free // MEGABYTE:,} MB are free below {export}, {needed // MEGABYTE:,} MB are"
            f" needed for what all nodes install{also}: remove something, or choose a folder"
            " on a larger disk as `storage.export`",
        )


def _shared(spec: DeploymentSpec, facts: MachineFacts) -> Found:
    if spec.name == publisher(spec.inventory) and not facts.shared_answers:
        folders = shared_folders(spec.inventory)
        yield (
            "problem",
            "storage",
            f"{folders.publish_folder} ({folders.source}) does not answer within"
            f" {PUBLISHED_SECONDS} s: is its server up, and can this node reach it?",
        )


def _network(spec: DeploymentSpec, facts: MachineFacts) -> Found:
    address = spec.inventory.links[spec.name]
    interface = spec.inventory.node(spec.name).interface or spec.inventory.interface
    node_addresses = facts.own_addresses
    if interface is not None and address not in facts.addresses.get(interface, ()):
        has = ", ".join(facts.addresses.get(interface, ())) or "no IPv4 address"
        yield (
            "problem",
            "network",
            f"{interface} has {has}, and the inventory says {address}: correct the address,"
            " or `interface:`",
        )
    elif address not in node_addresses:
        yield (
            "problem",
            "network",
            f"{address} is no address of this node (it has"
            f" {', '.join(sorted(node_addresses))}): correct its `address:`; `ssh.address` is"
            " where it is logged into",
        )


@dataclass(frozen=True)
class Machines(DeploymentSpec, Desired):
    """`Desired` for machines over SSH.

    It refuses nothing: systemd stops what the inventory does not have, so that every start makes
    sense.
    """

    def ask(self, node: Connector) -> MachineFacts:
        """Ask a machine the questions of all subjects."""
        return machine_facts(node, self.questions(node.name))

    def nodes_to_ask(self, names: Sequence[str], phases: Sequence[str]) -> Texts:
        """Ask the publisher too before mounts: the storage server has to know a new node first."""
        if "mounts" in phases:
            return tuple(dict.fromkeys((*names, self.publisher)))
        return tuple(names)

    def confirmed(self, answers: Survey[MachineFacts]) -> Self:
        """Return this without the addresses that nodes say they do not have.

        Such an address is a relay's, or an old one.
        """
        absent = {
            name
            for name, facts in answers.facts.items()
            if self.inventory.links[name] not in facts.own_addresses
        }
        unproven = self.inventory.unproven | absent
        return replace(self, inventory=self.inventory.model_copy(update={"unproven": unproven}))

    def address_lines(self, answers: Survey[MachineFacts]) -> Texts:
        """Return the lines about names, and about nodes that the others do not let in."""
        return address_lines(self.inventory, answers.lost)

    def findings(self, answers: Survey[MachineFacts]) -> tuple[Finding, ...]:
        """Examine every node that answered; one that is lost is a finding."""
        memory = memory_of_roles(
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
            spec = replace(self, name=name, memory=memory)
            environment = spec.environment(facts)
            if environment is None or environment in facts.environments:
                lacks = set()
            else:
                lacks = {environment}
            if name == self.publisher:
                room = room_needed(self.publications, needed | lacks, facts.published, self.folders)
                spec = replace(spec, publishes_bytes=room)
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
        tasks = self.of_node(node).tasks
        roles = {units.MONITOR_UNIT, units.SERVICE_UNIT, *map(units.unit_name, tasks)}
        return [
            f"{change.action} {change.kind} {change.subject} ({change.detail})"
            for phase in PHASES
            if phase != "code" or facts.current == code.key
            for change in replace(self, release=release).plan(phase, node, facts)
            if change.action != "start" or change.subject not in roles
        ]

    def check(self, fleet: Fleet) -> tuple[Finding, ...]:
        """Look at the nodes, and for the recordings on this machine."""
        answers = survey(fleet, self.ask)
        now = self.confirmed(answers)
        findings = (
            *now.findings(answers),
            *now.drifts(answers),
            *(Finding("warning", "addresses", line) for line in now.address_lines(answers)),
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
                    self.release.packages_for(facts, serves=self.of_node(name).recognises),
                )
                for name, facts in fit.items()
                if self.of_node(name).environment(facts) not in facts.environments
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

    def tidy(self, fleet: Fleet, answers: Survey[MachineFacts], names: Sequence[str]) -> list[str]:
        """Remove old releases, environments and wheels."""
        errors = split_errors(prune(fleet, names, self.inventory.deployment.keep_releases))[1]
        problems = [str(error) for error in errors.values()]
        if {*names} != {
            node.name for node in self.inventory.nodes
        }:  # the others' needs are unknown
            return problems
        needed = {key for facts in answers.facts.values() for key in facts.environments}
        named = {self.of_node(name).environment(facts) for name, facts in answers.facts.items()}
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
            node_questions = node_questions.and_those(subject.questions(self.of_node(node)))
        return node_questions

    def plan(self, phase: str, node: str, facts: MachineFacts) -> Changes:
        """Yield what to change in one phase on one node, in order."""
        for subject in SUBJECTS:
            if subject.phase == phase:
                yield from subject.plan(self.of_node(node), facts)
