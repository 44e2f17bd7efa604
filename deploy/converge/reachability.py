"""Whether each node reaches what it needs of the others, and from which address."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from core.ground.files import parsed_json
from deploy.cluster.connector import Connector
from deploy.cluster.fleet import Fleet
from deploy.cluster.places import shared_folders
from deploy.cluster.services import kept_tasks
from deploy.converge.apply import StepFailedError, StepFailure, survey
from deploy.converge.check import Finding
from deploy.converge.machine_facts import MachineFacts, Questions, Texts
from deploy.converge.subject import DeploymentSpec, Found, Subject
from deploy.render.network import NFS_PORT, NODE_EXPORTER_PORT, firewall_mark
from deploy.rooted.commands import PYTHON

if TYPE_CHECKING:
    from core.inventory import Inventory

PROBE_SECONDS = 60.0
ANSWER_SECONDS = {"plain": 5, "wireguard": 12}
"""The wait for one connection. A tunnel whose keys have just changed asks again after 5 s and a bit
(REKEY_TIMEOUT, wireguard.com/papers/wireguard.pdf)."""
REACHED = ""
REFUSED = "Connection refused"
"""The reason of a host that answers: no process listens there, or a firewall rejects."""
LOOK_AT = "look at the cable, the switch and the firewalls of both nodes"
_ANSWER = "@@reached "
_STEP = "reach the roles"
_PROBE = """\
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def probe(address):
    try:
        socket.create_connection(address, timeout=int(sys.argv[2])).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""
addresses = [tuple(one) for one in json.loads(sys.argv[1])]
with ThreadPoolExecutor(16) as pool:
    print("\\n@@reached " + json.dumps(list(pool.map(probe, addresses))))
"""


@dataclass(frozen=True)
class RequiredPort:
    """A port that `node` has to reach.

    `provider` is the node that has it, None for a machine outside the cluster.

    `blamed` is the node that leaves the run when it is not reached, empty where the jobs run
    without it.
    """

    node: str
    name: str
    host: str
    port: int
    provider: str | None
    blamed: str

    @property
    def words(self) -> str:
        """`ps:0 at 192.168.1.16:2222`."""
        return f"{self.name} at {self.host}:{self.port}"


@dataclass(frozen=True)
class Unreached:
    """A need, and what the node got instead of a connection."""

    need: RequiredPort
    reason: str


def needs_of(inventory: "Inventory", node: str) -> tuple[RequiredPort, ...]:
    """Return what a node needs: servers, the shared folder, roles it coordinates or watches."""
    needs = [*_ports_of_worker(inventory, node), *_ports_of_storage(inventory, node)]
    if any(task.node == node for task in inventory.of_role("coordinator")):
        for task in kept_tasks(inventory):
            needs.append(RequiredPort(node, task.name, task.host, task.port, task.node, task.node))
            # It asks a role there for its restart.
            needs.append(
                RequiredPort(node, task.name, task.host, task.metrics_port, task.node, task.node)
            )
    if node == inventory.monitor_node:
        needs += _ports_of_monitor(inventory, node)
    of_port = {(need.host, need.port): need for need in reversed(needs)}
    return tuple(need for need in needs if of_port[need.host, need.port] is need)


def _ports_of_worker(inventory: "Inventory", node: str) -> Iterator[RequiredPort]:
    if any(task.node == node for task in inventory.of_role("worker")):
        for task in inventory.of_role("ps"):
            yield RequiredPort(node, task.name, task.host, task.port, task.node, node)


def _ports_of_storage(inventory: "Inventory", node: str) -> Iterator[RequiredPort]:
    if inventory.storage is None:
        return
    folders = shared_folders(inventory)
    if folders.server != node:
        host = folders.source.partition(":")[0]
        yield RequiredPort(node, "the shared folder", host, NFS_PORT, folders.server, node)


def _ports_of_monitor(inventory: "Inventory", node: str) -> Iterator[RequiredPort]:
    for task in inventory.tasks():
        yield RequiredPort(
            node, f"metrics of {task.name}", task.host, task.metrics_port, task.node, ""
        )
    if inventory.deployment.node_exporter:
        for name, host in inventory.hosts.items():
            yield RequiredPort(node, f"node exporter of {name}", host, NODE_EXPORTER_PORT, name, "")


def unreached_by(inventory: "Inventory", node: Connector) -> tuple[Unreached, ...]:
    """Return what a node needs and does not reach.

    Raises ClusterError, also when the probe itself fails.
    """
    needs = needs_of(inventory, node.name)
    if not needs:
        return ()
    # The firewall lets the service account and root through, and not the account that logged in.
    addresses = json.dumps([(need.host, need.port) for need in needs])
    command = [PYTHON, "-", addresses, str(ANSWER_SECONDS[inventory.transport])]
    outcome = node.run(command, stdin=_PROBE.encode(), deadline_seconds=PROBE_SECONDS, root=True)
    # A start file of the account may have printed lines of its own.
    answers = [line for line in outcome.text.splitlines() if line.startswith(_ANSWER)]
    if outcome.ok and answers:
        reasons = _reasons(answers[-1].removeprefix(_ANSWER))
    else:
        reasons = []
    if len(reasons) != len(needs):
        raise StepFailedError(
            StepFailure(
                node.name,
                "verify",
                _STEP,
                outcome.last_lines,
                f"`fab deploy ssh --node {node.name}` looks at it by hand",
                "python3 - ...",
                outcome.return_code,
            )
        )
    return tuple(
        Unreached(need, reason)
        for need, reason in zip(needs, reasons, strict=True)
        if reason != REACHED
    )


def _reasons(text: str) -> list[str]:
    """Return what a probe says, empty where that is no answer: the node may be anybody's."""
    try:
        answer = parsed_json(text)
    except ValueError:
        return []
    if isinstance(answer, list) and all(isinstance(reason, str) for reason in answer):
        return answer
    return []


def unreachable(
    inventory: "Inventory", fleet: Fleet, names: Collection[str], lost: Collection[str] = ()
) -> list[StepFailure]:
    """Return the failures of a start whose nodes `names` run by now.

    Nodes `lost` have left it before.

    A node fails when it does not reach what it needs, or when the coordinator's node does not reach
    its roles.
    """
    answers = survey(fleet, partial(unreached_by, inventory), sorted(names))
    failures = [replace(lost, phase="verify", step=_STEP) for lost in answers.lost.values()]
    missing = [
        unreached
        for of_node in answers.facts.values()
        for unreached in of_node
        if _counts_after_start(unreached, names, lost)
    ]
    for name in dict.fromkeys(unreached.need.blamed for unreached in missing):
        lines = said_of([unreached for unreached in missing if unreached.need.blamed == name])
        failures.append(StepFailure(name, "verify", _STEP, lines, LOOK_AT))
    return failures


def _counts_after_start(
    unreached: Unreached, names: Collection[str], lost: Collection[str]
) -> bool:
    provider = unreached.need.provider
    if not unreached.need.blamed or provider in lost:
        return False
    # With --limit the others may be stopped.
    return provider is None or provider in names or unreached.reason != REFUSED


def said_of(missing: Sequence[Unreached]) -> Texts:
    """Return one line for each node that asks and reason it got."""
    groups: dict[tuple[str, str], list[str]] = {}
    for unreached in missing:
        groups.setdefault((unreached.need.node, unreached.reason), []).append(unreached.need.words)
    return tuple(
        f"{node} does not reach {', '.join(ports)}: {reason}"
        for (node, reason), ports in groups.items()
    )


def found_unreached(
    inventory: "Inventory",
    fleet: Fleet,
    facts_by_node: Mapping[str, MachineFacts],
    lost: Collection[str],
) -> tuple[Finding, ...]:
    """Return what the nodes of `facts_by_node` do not reach, as findings.

    The cluster may be stopped, or not yet deployed.

    A port where no process listens is reached when its host refuses the connection. Nothing is
    concluded about a host whose firewall of ours is not that of the inventory: a start will change
    it.
    """
    probed_nodes = [name for name, facts in facts_by_node.items() if facts.python is not None]
    answers = survey(fleet, partial(unreached_by, inventory), probed_nodes)
    findings = [
        Finding(
            "warning",
            f"{name} network",
            f"not looked at: {' | '.join(failure.last_lines)}",
            name,
        )
        for name, failure in answers.lost.items()
    ]
    for name, unreached_ports in answers.facts.items():
        counted = [
            unreached
            for unreached in unreached_ports
            if _counts(inventory, unreached, facts_by_node, lost)
        ]
        without_blame = [unreached for unreached in counted if not unreached.need.blamed]
        blamed = [unreached for unreached in counted if unreached.need.blamed]
        findings += [
            Finding("problem", f"{name} network", f"{line}; {LOOK_AT}", name)
            for line in said_of(blamed)
        ]
        findings += [
            Finding("warning", f"{name} network", f"{line}; {LOOK_AT}", name)
            for line in said_of(without_blame)
        ]
    return tuple(findings)


def _counts(
    inventory: "Inventory",
    unreached: Unreached,
    facts_by_node: Mapping[str, MachineFacts],
    lost: Collection[str],
) -> bool:
    provider = unreached.need.provider
    if provider is None:
        return True
    facts = facts_by_node.get(provider)
    if facts is None:  # its own silence is said already, or it was not asked
        return provider not in lost and unreached.reason != REFUSED
    if facts.firewall not in (None, firewall_mark(inventory, provider)):
        return False
    return unreached.reason != REFUSED or unreached.need.port in facts.listening


def _sources(text: str) -> dict[str, str]:
    sources: dict[str, str] = {}
    for line in text.splitlines():
        fields = line.split()
        if fields and fields[0] != "local" and "src" in fields:
            sources[fields[0]] = fields[fields.index("src") + 1]
    return sources


def _check(spec: DeploymentSpec, facts: MachineFacts) -> Found:
    yield from (
        ("problem", "network", line) for line in wrong_sources(spec.inventory, spec.name, facts)
    )


def wrong_sources(inventory: "Inventory", node: str, facts: MachineFacts) -> Iterator[str]:
    """Yield a line for each address but the inventory's that packets of the node leave from."""
    sources = facts.sources
    own_address = inventory.hosts[node]
    if own_address not in facts.own_addresses:
        return  # which is a finding of its own
    reported_sources = set()
    for need in needs_of(inventory, node):
        source = sources.get(need.host, own_address)
        if source != own_address and source not in reported_sources:
            reported_sources.add(source)
            yield (
                f"{node} asks for {need.words} from {source}, and the inventory says {own_address}:"
                " the other nodes let the inventory's addresses in alone; correct its `address:`,"
                f" or its route (`ip route get {need.host}`)"
            )


def _questions(spec: DeploymentSpec) -> Questions:
    needs = needs_of(spec.inventory, spec.name)
    return Questions(
        peers=tuple(sorted({need.host for need in needs if need.provider not in (None, spec.name)}))
    )


REACHABILITY = Subject(
    "reachability", "services", facts={"sources": _sources}, check=_check, questions=_questions
)
