"""`status`: what each node is, in one row. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from deploy.cluster.places import MONITOR_ACCOUNT, ROLE_ACCOUNT, SERVICE_ACCOUNT, account_numbers
from deploy.cluster.services import RoleState, RoleStatus
from deploy.converge.check import Finding
from deploy.converge.machine_facts import THROTTLED_NOW, MachineFacts, UnitFact
from deploy.converge.memory_estimate import MEGABYTE
from deploy.converge.reachability import wrong_sources
from deploy.converge.storage import disk_trouble
from deploy.converge.survey import Survey
from deploy.converge.systemd import role_states
from deploy.render import storage, units

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


def node_rows(
    machines: "Machines", survey: Survey[MachineFacts], troubles: Sequence[Finding] = ()
) -> tuple[NodeRow, ...]:
    """Return a row for every node that was asked, in the order of the inventory.

    `troubles` are ports that nodes need of others and do not reach, and what was changed on a node.
    """
    status = role_states(machines.inventory, survey)
    rows = []
    for node in machines.inventory.nodes:
        roles = [role for role in status.roles if role.node == node.name]
        if node.name in survey.lost:
            reason = survey.lost[node.name].last_lines[0]
            rows.append(_lost(node.name, machines.inventory.links[node.name], roles, reason))
        elif node.name in survey.facts:
            lines = [finding.line for finding in troubles if finding.node == node.name]
            rows.append(_Row(machines, node.name, survey.facts[node.name]).of(roles, lines))
    return tuple(rows)


def _lost(name: str, address: str, roles: Sequence[RoleStatus], reason: str) -> NodeRow:
    role_names = ", ".join(f"{role.name} ?" for role in roles)
    return NodeRow(name, address, role_names, "-", "-", "-", "-", "-", None, 0, reason)


class _Row:
    """The row of one node that answered, filled step by step."""

    def __init__(self, machines: "Machines", name: str, facts: MachineFacts) -> None:
        self._machines = machines
        self._inventory = machines.inventory
        self._name = name
        self._facts = facts
        self._roles: list[str] = []
        self._ports: list[str] = []
        self._trouble: list[str] = []

    def of(self, roles: Sequence[RoleStatus], troubles: Sequence[str]) -> NodeRow:
        """Return the row, with the states of the node's roles."""
        self._add_roles(roles)
        if self._machines.watches(self._name):
            self._add_monitor()
        if self._machines.recognises(self._name):
            self._add_service()
        self._look_at_exporter()
        folders = self._machines.folders
        lines = storage.fstab_lines(self._inventory, self._name, folders)
        points = [line.split()[1] for line in lines]
        missing = [point for point in points if point not in self._facts.mounts]
        self._trouble += [f"{point} is not mounted" for point in missing]
        self._trouble += disk_trouble(self._inventory, self._name, self._facts)
        self._trouble += wrong_sources(self._inventory, self._name, self._facts)
        self._trouble += troubles
        up = [role.uptime_seconds for role in roles if role.uptime_seconds is not None]
        used = self._facts.memory_bytes - self._facts.available_bytes
        return NodeRow(
            node=self._name,
            address=self._inventory.links[self._name],
            roles=", ".join(self._roles) or "-",
            ports=" ".join(self._ports) or "-",
            mounts=f"{len(points) - len(missing)}/{len(points)}",
            memory=f"{used // MEGABYTE}/{self._facts.memory_bytes // MEGABYTE} MB",
            temperature=_temperature(self._facts),
            release=_release(self._facts, self._machines.release.code.key),
            uptime_seconds=min(up, default=None),
            restarts=sum(role.restarts for role in roles),
            trouble="; ".join(self._trouble),
        )

    def _add_port(self, port: int, account: str) -> bool:
        """Add a port, and return whether a process of the account, or of root, listens there."""
        accounts = (0, account_numbers(self._inventory)[account])
        uid = self._facts.listening_uids.get(port, 0)
        listens = port in self._facts.listening and uid in accounts
        self._ports.append(f"{port}" if listens else f"{port}!")
        return listens

    def _add_roles(self, roles: Sequence[RoleStatus]) -> None:
        self._roles += [f"{role.name} {role.state}" for role in roles]
        self._trouble += [_trouble(role) for role in roles if role.state is not RoleState.READY]
        for task in self._machines.tasks(self._name):
            for port in (task.port, task.metrics_port):
                if not self._add_port(port, ROLE_ACCOUNT) and not self._trouble:
                    self._trouble.append(f"no process listens on port {port} of {task.name}")

    def _add_monitor(self) -> None:
        state = _state(self._facts.unit(units.MONITOR_UNIT))
        self._roles.append(f"monitor {state}")
        self._add_port(self._inventory.monitor.port, MONITOR_ACCOUNT)
        if state != "ready":
            hint = f"`journalctl -u {units.MONITOR_UNIT}` there says more"
            self._trouble.append(f"monitor {state}: {hint}")

    def _add_service(self) -> None:
        state = _state(self._facts.unit(units.SERVICE_UNIT))
        listens = self._add_port(self._inventory.service.port, SERVICE_ACCOUNT)
        if state == "ready" and not listens:
            state = "waiting"
            hint = "`fab service promote --run RUN --inventory FILE`"
            self._trouble.append(f"service waiting for its first version: {hint}")
        elif state != "ready":
            hint = f"`journalctl -u {units.SERVICE_UNIT}` there says more"
            self._trouble.append(f"service {state}: {hint}")
        self._roles.append(f"service {state}")

    def _look_at_exporter(self) -> None:
        state = _state(self._facts.unit(f"{units.NODE_EXPORTER}.service"))
        if self._inventory.deployment.node_exporter and state != "ready":
            hint = f"`journalctl -u {units.NODE_EXPORTER}` there says more"
            self._trouble.append(f"node exporter {state}: {hint}")


def _state(unit: UnitFact | None) -> str:
    if unit is None:
        return "not there"
    if unit.running:
        return "ready"
    return unit.sub


def _temperature(facts: MachineFacts) -> str:
    if facts.temperature_celsius is None:
        return "-"
    reading = f"{facts.temperature_celsius:.0f} °C"
    if (facts.throttled or 0) & THROTTLED_NOW:
        return f"{reading} throttled"
    return reading


def _release(facts: MachineFacts, local_key: str) -> str:
    if facts.current is None:
        return "-"
    if facts.current == local_key:
        return facts.current[:8]
    return f"{facts.current[:8]} (here: {local_key[:8]})"


def _trouble(role: RoleStatus) -> str:
    return f"{role.name} {role.state}" + (f": {role.reason}" if role.reason else "")
