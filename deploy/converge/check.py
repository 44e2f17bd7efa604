"""Whether a cluster can start on this machine: its facts, and the findings from them."""

import contextlib
import errno
import importlib.metadata
import importlib.util
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import psutil

from core.cage import landlock
from core.cage.landlock import Coverage
from core.ground.errors import UsageError
from core.ground.files import parsed_json
from core.ground.ports import bind_problem, every_interface, holder_of
from core.inventory import Task
from deploy.cluster.connector import Connector, NodeDeadlineError
from deploy.cluster.services import ClusterStatus, RoleState
from deploy.common.project import module_command
from deploy.converge.hardware import cage_finding
from deploy.converge.machine_facts import LARGEST_SHARE, MEGABYTE, RoleMemory
from deploy.jobs.apps import reads_its_data

if TYPE_CHECKING:
    from core.inventory import Inventory

_PROBE_DEADLINE_SECONDS = 60.0

# Asked in processes of their own: deploy knows neither room, and on a deployed cluster the question
# has to be put on the node anyway. Each prints one JSON object.
_GUARD_PROBE = "core.server.port_guard"
_DATA_PROBE = "core.data.look"


@dataclass(frozen=True)
class Precondition:
    """Whether something holds, and one line about it."""

    holds: bool
    line: str


@dataclass(frozen=True)
class NodeFacts:
    """One machine.

    `taken_ports` has the holder of each taken port, as far as the system shows it.
    """

    python: str
    machine: str
    bits: int
    tensorflow: str | None
    cores: int
    memory_bytes: int
    available_bytes: int
    taken_ports: Mapping[int, str]
    guard: Precondition
    """The guard against other machines."""
    accounts: Precondition
    """The guard against other accounts of this one."""
    privileges: Precondition
    """Whether roles run as an account that is not root."""
    data: Precondition
    cage: Coverage


def gather(node: Connector, ports: Iterable[int], inventory: "Inventory") -> NodeFacts:
    """Return the facts of this machine.

    TensorFlow is looked for and not imported, which would take many seconds.
    """
    memory = psutil.virtual_memory()
    guard, accounts, privileges = guard_of(node)
    return NodeFacts(
        python=platform.python_version(),
        machine=platform.machine(),
        bits=64 if sys.maxsize > 2**32 else 32,
        tensorflow=_tensorflow_version(),
        cores=psutil.cpu_count() or 1,
        memory_bytes=memory.total,
        available_bytes=memory.available,
        taken_ports={port: holder_of(port)[0] for port in ports if _is_taken(port)},
        guard=guard,
        accounts=accounts,
        privileges=privileges,
        data=data_of(inventory, node),
        cage=landlock.kernel_coverage(),
    )


def guard_of(node: Connector) -> tuple[Precondition, Precondition, Precondition]:
    """Find whether roles keep other machines and accounts out of their ports, and are not root."""
    answer = _ask(node, _GUARD_PROBE)
    if isinstance(answer, str):
        return (
            Precondition(False, answer),
            Precondition(False, answer),
            Precondition(False, f"roles may run as root: {answer}"),
        )
    return _answer(answer["machines"]), _answer(answer["accounts"]), _answer(answer["privileges"])


def data_of(inventory: "Inventory", node: Connector) -> Precondition:
    """Find whether the inventory's trainings have data.

    They have it with recordings that `node` finds, or with an app that reads its own.
    """
    try:
        if reads_its_data(inventory):
            return Precondition(True, f"read by the app {inventory.jobs.train.app}")
    except UsageError as problem:
        return Precondition(False, str(problem))
    return recordings_of(node, inventory.jobs.train.data.source, inventory.jobs.train.data.format)


def recordings_of(
    node: Connector, data_source: str | None, format_name: str | None = None
) -> Precondition:
    """Whether a machine has the recordings, or finds some where none are named."""
    arguments = [] if format_name is None else [f"--format={format_name}"]
    arguments += [] if data_source is None else ["--", data_source]
    answer = _ask(node, _DATA_PROBE, *arguments)
    if isinstance(answer, str):
        return Precondition(False, answer)
    return _answer(answer)


def _tensorflow_version() -> str | None:
    if importlib.util.find_spec("tensorflow") is None:
        return None
    for wheel in ("tensorflow-cpu", "tensorflow"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(wheel)
    return "of unknown version"


def _is_taken(port: int) -> bool:
    """Whether a process listens there, on any interface."""
    problem = bind_problem(every_interface(), port)
    return problem is not None and problem.errno == errno.EADDRINUSE


def _ask(node: Connector, module: str, *arguments: str) -> dict[str, Any] | str:
    """The object that a probe prints, or why there is none."""
    try:
        outcome = node.run(
            module_command(module, *arguments), deadline_seconds=_PROBE_DEADLINE_SECONDS
        )
    except NodeDeadlineError:
        return f"no answer within {_PROBE_DEADLINE_SECONDS:.0f} s"
    if not outcome.ok:
        if outcome.stderr.strip():
            return outcome.last_lines[-1]
        return f"the probe ended with exit code {outcome.return_code}"
    try:
        answer: dict[str, Any] = parsed_json(outcome.text)
    except ValueError as problem:
        return f"expected the probe's JSON, got {problem}"
    return answer


def _answer(answer: Mapping[str, Any]) -> Precondition:
    return Precondition(bool(answer["holds"]), str(answer["line"]))


Level = Literal["ok", "warning", "problem"]
MACHINES = ("x86_64", "aarch64")


@dataclass(frozen=True)
class Finding:
    """One thing looked at; a problem keeps the cluster from working, a warning does not."""

    level: Level
    subject: str
    line: str
    node: str = ""
    """The node, where there are several; the subject begins with it then."""

    @property
    def topic(self) -> str:
        """The subject without the node."""
        return self.subject.removeprefix(self.node).strip()

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        if self.node:
            return asdict(self)
        return {"level": self.level, "subject": self.subject, "line": self.line}


def check_node(
    tasks: Sequence[Task],
    status: ClusterStatus,
    facts: NodeFacts,
    memory: RoleMemory,
    job_runs: bool,
) -> tuple[Finding, ...]:
    """The findings for one machine that carries all of `tasks`, the coordinator included."""
    return (
        *_software(facts),
        *_ports(tasks, status, facts.taken_ports, job_runs),
        _memory(tasks, facts, memory, running=status.running),
        *_answers(tasks, facts),
    )


def _software(facts: NodeFacts) -> Iterator[Finding]:
    line = f"Python {facts.python}, {facts.bits}-bit {facts.machine}"
    if facts.bits != 64 or facts.machine not in MACHINES:
        line = f"{line}: TensorFlow has wheels for 64-bit {' and '.join(MACHINES)} only"
        yield Finding("problem", "platform", line)
    else:
        yield Finding("ok", "platform", line)
    if facts.tensorflow is None:
        yield Finding(
            "problem", "tensorflow", "not installed for this Python: `make .venv` installs it"
        )
    else:
        yield Finding("ok", "tensorflow", facts.tensorflow)


def _ports(
    tasks: Sequence[Task], status: ClusterStatus, taken_ports: Mapping[int, str], job_runs: bool
) -> Iterator[Finding]:
    running_roles = {
        role.name
        for role in status.roles
        if role.state in (RoleState.READY, RoleState.FROZEN, RoleState.STARTING)
    }
    for task in tasks:
        if task.name in running_roles or (task.role == "coordinator" and job_runs):
            yield Finding("ok", task.name, f"runs on ports {task.port} and {task.metrics_port}")
            continue
        occupied_ports = [port for port in (task.port, task.metrics_port) if port in taken_ports]
        for port in occupied_ports:
            line = f"port {port} is taken by {taken_ports[port]}: stop it, or choose another port"
            yield Finding("problem", task.name, line)
        if not occupied_ports:
            yield Finding("ok", task.name, f"ports {task.port} and {task.metrics_port} are free")
        page = task.page_port
        if page is not None and page in taken_ports:
            yield Finding(
                "warning",
                task.name,
                (
                    f"port {page} of the live page is taken by {taken_ports[page]}: jobs run"
                    " without the page; stop that, or choose another `page_port`"
                ),
            )


def _memory(
    tasks: Sequence[Task], facts: NodeFacts, memory: RoleMemory, *, running: bool
) -> Finding:
    needed = sum(memory.of(task.role) for task in tasks)
    line = (
        f"the roles take about {needed // MEGABYTE} MB of {facts.memory_bytes // MEGABYTE} MB, "
        f"{facts.available_bytes // MEGABYTE} MB are available"
    )
    if needed > LARGEST_SHARE * facts.memory_bytes:
        return Finding(
            "problem",
            "memory",
            (
                f"{line}: more than {LARGEST_SHARE:.0%} of it; run fewer workers or a smaller"
                " model, or move the coordinator or the PS to another node"
            ),
        )
    if needed > facts.available_bytes and not running:
        return Finding("warning", "memory", f"{line}: close something first")
    return Finding("ok", "memory", line)


def _answers(tasks: Sequence[Task], facts: NodeFacts) -> Iterator[Finding]:
    line = facts.guard.line
    if facts.guard.holds:
        yield Finding("ok", "port guard", f"ports will answer this machine only ({line})")
    else:
        yield Finding(
            "warning",
            "port guard",
            (
                f"ports will be open to the whole network and run any graph from anyone: {line};"
                " use a firewall"
            ),
        )
    if facts.accounts.holds:
        line = f"ports will answer root and the roles' own account only ({facts.accounts.line})"
        yield Finding("ok", "accounts", line)
    else:
        yield Finding("warning", "accounts", open_to_accounts(tasks, facts.accounts))
    if not facts.privileges.holds:
        yield Finding("warning", "privileges", facts.privileges.line)
    yield Finding(*cage_finding(facts.cage, "role"))
    yield Finding("ok" if facts.data.holds else "problem", "data", facts.data.line)


def open_to_accounts(tasks: Sequence[Task], accounts: Precondition) -> str:
    """Say who can do what where the port guard knows no accounts, and the remedy."""
    ports = ", ".join(str(port) for port in sorted(task.port for task in tasks))
    return (
        f"any account of this machine can run code {accounts.line}; it needs only to connect to"
        f" port {ports}: share the machine with accounts that you trust only, or use one with Linux"
        " 5.5 or later that grants seccomp"
    )
