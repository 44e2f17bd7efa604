"""`status`: what each node is, in one row. Pure."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from deploy.cluster.services import RoleState, RoleStatus
from deploy.converge.machine_facts import MachineFacts
from deploy.converge.memory_estimate import MEGABYTE
from deploy.converge.survey import Survey
from deploy.converge.systemd import role_states
from deploy.render.storage import fstab_lines
from deploy.render.units import MONITOR_UNIT, SERVICE_UNIT

if TYPE_CHECKING:
    from deploy.converge.desired import Machines


@dataclass(frozen=True)
class NodeRow:
    """One node; `trouble` is empty where all is well."""

    node: str
    address: str
    roles: str
    ports: str
    mounts: str
    memory: str
    temperature: str
    release: str
    uptime_seconds: float | None
    restarts: int
    trouble: str

    @property
    def well(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.trouble

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "well": self.well}


def node_rows(wish: "Machines", survey: Survey[MachineFacts]) -> tuple[NodeRow, ...]:
    """A row for every node that was asked, in the order of the inventory."""
    roles = role_states(wish.inventory, survey).roles
    return tuple(
        _row(wish, survey, node.name, tuple(role for role in roles if role.node == node.name))
        for node in wish.inventory.nodes
        if node.name in survey.facts or node.name in survey.lost
    )


def _row(wish: "Machines", survey: Survey[MachineFacts], name: str, roles: tuple[RoleStatus, ...]) -> NodeRow:
    address = wish.inventory.hosts[name]
    if name in survey.lost:
        reason = survey.lost[name].last_lines[0]
        shown = ", ".join(f"{role.name} ?" for role in roles)
        return NodeRow(name, address, shown, "-", "-", "-", "-", "-", None, 0, reason)
    facts = survey.facts[name]
    trouble = [_trouble(role) for role in roles if role.state is not RoleState.READY]
    ports = []
    for task in wish.tasks(name):
        for port in (task.port, task.metrics_port):
            ports.append(f"{port}{'' if port in facts.listening else '!'}")
            if port not in facts.listening and not trouble:
                trouble.append(f"no process listens on port {port} of {task.name}")
    running = [f"{role.name} {role.state}" for role in roles]
    if name == wish.inventory.monitor_node:
        watching, port = facts.unit(MONITOR_UNIT), wish.inventory.monitor.port
        state = "not there" if watching is None else "ready" if watching.running else watching.sub
        running.append(f"monitor {state}")
        ports.append(f"{port}{'' if port in facts.listening else '!'}")
        trouble += [] if state == "ready" else [f"monitor {state}: `journalctl -u {MONITOR_UNIT}` there says more"]
    if name in wish.inventory.service_nodes:
        serving, port = facts.unit(SERVICE_UNIT), wish.inventory.service.port
        state = "not there" if serving is None else "ready" if serving.running else serving.sub
        if state == "ready" and port not in facts.listening:
            state = "waiting"
            trouble.append("service waiting for its first version: `fab service promote --run RUN --inventory FILE`")
        running.append(f"service {state}")
        ports.append(f"{port}{'' if port in facts.listening else '!'}")
        if state not in ("ready", "waiting"):
            trouble.append(f"service {state}: `journalctl -u {SERVICE_UNIT}` there says more")
    points = [line.split() for line in fstab_lines(wish.inventory, name, wish.folders)]
    mounted = [words[1] for words in points if words[1] in facts.mounts]
    trouble += [f"{words[1]} is not mounted" for words in points if words[1] not in facts.mounts]
    if facts.current is not None and facts.current != wish.release.code.key:
        release = f"{facts.current[:8]} (here: {wish.release.code.key[:8]})"
    else:
        release = "-" if facts.current is None else facts.current[:8]
    heat = facts.temperature_celsius
    return NodeRow(
        node=name,
        address=address,
        roles=", ".join(running) or "-",
        ports=" ".join(ports) or "-",
        mounts=f"{len(mounted)}/{len(points)}",
        memory=f"{(facts.memory_bytes - facts.available_bytes) // MEGABYTE}/{facts.memory_bytes // MEGABYTE} MB",
        temperature="-" if heat is None else f"{heat:.0f} °C{' throttled' if (facts.throttled or 0) & 0x4 else ''}",
        release=release,
        uptime_seconds=min((role.uptime_seconds for role in roles if role.uptime_seconds is not None), default=None),
        restarts=sum(role.restarts for role in roles),
        trouble="; ".join(trouble),
    )


def _trouble(role: RoleStatus) -> str:
    return f"{role.name} {role.state}" + (f": {role.reason}" if role.reason else "")
