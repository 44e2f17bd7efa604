"""Whether a cluster could be started here: the inventory against the facts. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from cluster.inventory.task import Task
from deploy.cluster.role_status import ClusterStatus, RoleState
from deploy.converge.facts import Answer, NodeFacts
from deploy.converge.memory_estimate import LARGEST_SHARE, MEGABYTE, RoleMemory

Level = Literal["ok", "warning", "problem"]
MACHINES = ("x86_64", "aarch64")


@dataclass(frozen=True)
class Finding:
    """One thing looked at; a problem keeps the cluster from working, a warning does not."""

    level: Level
    subject: str
    line: str
    node: str = ""
    """Of several; the subject begins with it then."""

    @property
    def topic(self) -> str:
        """The subject without the node."""
        return self.subject.removeprefix(self.node).strip()

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return asdict(self) if self.node else {"level": self.level, "subject": self.subject, "line": self.line}


def check_node(
    tasks: Sequence[Task], status: ClusterStatus, facts: NodeFacts, memory: RoleMemory, job_runs: bool
) -> tuple[Finding, ...]:
    """The findings for one machine that carries all of `tasks`, the coordinator included."""
    return (
        _platform(facts),
        _tensorflow(facts),
        *_ports(tasks, status, facts.taken_ports, job_runs),
        _memory(tasks, facts, memory, running=status.running),
        _guard(facts),
        _accounts(tasks, facts),
        *_privileges(facts),
        _data(facts),
    )


def _platform(facts: NodeFacts) -> Finding:
    line = f"Python {facts.python}, {facts.bits}-bit {facts.machine}"
    if facts.bits != 64 or facts.machine not in MACHINES:
        return Finding("problem", "platform", f"{line}: TensorFlow has wheels for 64-bit {' and '.join(MACHINES)} only")
    return Finding("ok", "platform", line)


def _tensorflow(facts: NodeFacts) -> Finding:
    if facts.tensorflow is None:
        return Finding("problem", "tensorflow", "not installed for this Python: `make .venv` installs it")
    return Finding("ok", "tensorflow", facts.tensorflow)


def _ports(
    tasks: Sequence[Task], status: ClusterStatus, taken: Mapping[int, str], job_runs: bool
) -> tuple[Finding, ...]:
    ours = {role.name for role in status.roles if role.state in (RoleState.READY, RoleState.FROZEN, RoleState.STARTING)}
    findings = []
    for task in tasks:
        if task.name in ours or (task.role == "coordinator" and job_runs):
            findings.append(Finding("ok", task.name, f"runs on ports {task.port} and {task.metrics_port}"))
            continue
        held = [port for port in (task.port, task.metrics_port) if port in taken]
        findings += [
            Finding("problem", task.name, f"port {port} is taken by {taken[port]}: stop it, or choose another port")
            for port in held
        ]
        if not held:
            findings.append(Finding("ok", task.name, f"ports {task.port} and {task.metrics_port} are free"))
        page = task.page_port
        if page is not None and page in taken:
            line = f"port {page} of the live page is taken by {taken[page]}: jobs run without the page"
            findings.append(Finding("warning", task.name, f"{line}; stop that, or choose another `page_port`"))
    return tuple(findings)


def _memory(tasks: Sequence[Task], facts: NodeFacts, memory: RoleMemory, *, running: bool) -> Finding:
    needed = sum(memory.of(task.role) for task in tasks)
    line = (
        f"the roles take about {needed // MEGABYTE} MB of {facts.memory_bytes // MEGABYTE} MB, "
        f"{facts.available_bytes // MEGABYTE} MB are available"
    )
    if needed > LARGEST_SHARE * facts.memory_bytes:
        remedy = "run fewer workers or a smaller model, or move the coordinator or the PS to another node"
        return Finding("problem", "memory", f"{line}: more than {LARGEST_SHARE:.0%} of it; {remedy}")
    if needed > facts.available_bytes and not running:
        return Finding("warning", "memory", f"{line}: close something first")
    return Finding("ok", "memory", line)


def _guard(facts: NodeFacts) -> Finding:
    if facts.guard.holds:
        return Finding("ok", "port guard", f"ports will answer this machine only ({facts.guard.line})")
    return Finding(
        "warning",
        "port guard",
        f"ports will be open to the whole network and run any graph from anyone: {facts.guard.line}; use a firewall",
    )


def _accounts(tasks: Sequence[Task], facts: NodeFacts) -> Finding:
    if facts.accounts.holds:
        return Finding(
            "ok", "accounts", f"ports will answer root and the roles' own account only ({facts.accounts.line})"
        )
    return Finding("warning", "accounts", open_to_accounts(tasks, facts.accounts))


def _privileges(facts: NodeFacts) -> tuple[Finding, ...]:
    return () if facts.privileges.holds else (Finding("warning", "privileges", facts.privileges.line),)


def open_to_accounts(tasks: Sequence[Task], accounts: Answer) -> str:
    """Who can do what where the port guard knows no accounts, and the remedy."""
    ports = ", ".join(str(port) for port in sorted(task.port for task in tasks))
    return (
        f"any account of this machine can run code {accounts.line}; it needs only to connect to port {ports}: "
        "share the machine with accounts that you trust only, or use one with Linux 5.5 or later that grants seccomp"
    )


def _data(facts: NodeFacts) -> Finding:
    return Finding("ok" if facts.data.holds else "problem", "data", facts.data.line)
