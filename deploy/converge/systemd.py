"""The service manager of a cluster of machines, and what `status` says of each node in one row.

systemd is asked over each node's connector.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from deploy.cluster.connector import Connector
from deploy.cluster.fleet import Fleet, split_errors
from deploy.cluster.places import (
    MONITOR_ACCOUNT,
    ROLE_ACCOUNT,
    SERVICE_ACCOUNT,
    NodePlaces,
    account_numbers,
)
from deploy.cluster.services import (
    ClusterStatus,
    DegradedError,
    LogPlace,
    RoleState,
    RoleStatus,
    Stopped,
    kept_tasks,
)
from deploy.common.command_line import filled, quoted, shell
from deploy.converge.apply import Survey, run_as_root, survey
from deploy.converge.check import Finding
from deploy.converge.machine_facts import MEGABYTE, THROTTLED_NOW, MachineFacts, Questions, UnitFact
from deploy.converge.reachability import wrong_sources
from deploy.converge.storage import disk_trouble
from deploy.converge.survey import machine_facts
from deploy.render import storage, units
from deploy.render.units import SERVICE_UNIT, unit_name

if TYPE_CHECKING:
    from core.inventory import Inventory, Task
    from deploy.converge.desired import Machines


STOP_SECONDS = 120.0
RESTART_SECONDS = 400.0
_STATES = {
    "active": RoleState.READY,
    "reloading": RoleState.READY,
    "activating": RoleState.STARTING,
    "deactivating": RoleState.STOPPING,
    "failed": RoleState.FAILED,
    "inactive": RoleState.STOPPED,
}


class Systemd:
    """`ServiceManager` over the units of one inventory."""

    def __init__(self, inventory: "Inventory", places: NodePlaces = NodePlaces()) -> None:  # noqa: B008  frozen
        self._inventory = inventory
        self._places = places
        self._tasks = kept_tasks(inventory)

    def state(self, fleet: Fleet) -> ClusterStatus:
        """Ask systemd on every node about the roles."""
        return role_states(self._inventory, survey(fleet, self._ask))

    def stop(self, fleet: Fleet, nodes: Sequence[str]) -> Stopped:
        """Interrupt a job, then stop the units; the roles do not start at boot either."""
        (coordinator,) = self._inventory.of_role("coordinator")
        if coordinator.node in nodes:
            # It has its result while all roles are still there. Its node's failure comes with the
            # next command.
            fleet.each(_interrupt_on, [coordinator.node])
        stopped, failed = split_errors(fleet.each(_stop_on, nodes))
        return Stopped(stopped, failed=failed)

    def restart(self, fleet: Fleet, tasks: "Sequence[Task]") -> ClusterStatus:
        """Restart the units of these roles.

        Raises DegradedError with the node and the last lines of each role that does not start.

        A restart that returns has all of them ready: systemd waits for their READY=1.
        """
        of_node = {
            task.node: [neighbour for neighbour in tasks if neighbour.node == task.node]
            for task in tasks
        }
        results = fleet.each(lambda node: restart_on(node, of_node[node.name]), list(of_node))
        failed = split_errors(results)[1]
        if failed:
            raise DegradedError("\n".join(map(str, failed.values())))
        ready = (RoleStatus.of(task, RoleState.READY) for task in tasks)
        return ClusterStatus(self._inventory.cluster, tuple(ready))

    def logs(self) -> Sequence[LogPlace]:
        """Return where the lines of roles and jobs lie.

        They are units in each node's journal, and the coordinator's run beside its unit's own
        lines.
        """
        log_places = [LogPlace("", node.name, unit="pscluster-*") for node in self._inventory.nodes]
        log_places += [LogPlace(task.name, task.node, unit=unit_name(task)) for task in self._tasks]
        log_places += [
            LogPlace("service", node, unit=SERVICE_UNIT) for node in self._inventory.service_nodes
        ]
        (task,) = self._inventory.of_role("coordinator")
        runs = self._places.runs(self._inventory)
        jobs = f"{self._places.state}/jobs"
        coordinator = LogPlace(task.name, task.node, runs=runs, jobs=jobs, user=self._places.user)
        return [*log_places, LogPlace(task.name, task.node, unit="pscluster-job@*"), coordinator]

    def _ask(self, node: Connector) -> MachineFacts:
        units = tuple(unit_name(task) for task in self._tasks if task.node == node.name)
        return machine_facts(node, Questions(units=units))


def role_states(inventory: "Inventory", answers: Survey[MachineFacts]) -> ClusterStatus:
    """Return one record a role.

    The roles of a node that does not answer have failed, and its answer is the reason.
    """
    return ClusterStatus(
        inventory.cluster, tuple(_role(task, answers) for task in kept_tasks(inventory))
    )


def _role(task: "Task", answers: Survey[MachineFacts]) -> RoleStatus:
    if task.node in answers.lost:
        reason = answers.lost[task.node].last_lines[0]
        return RoleStatus.of(task, RoleState.FAILED, reason=reason)
    facts = answers.facts.get(task.node)
    if facts is None or (unit := facts.unit(unit_name(task))) is None:
        return RoleStatus.of(task, RoleState.STOPPED)
    return RoleStatus.of(
        task,
        state_of(unit),
        pid=unit.pid or None,
        anonymous_memory_bytes=unit.anonymous_memory_bytes,
        uptime_seconds=(
            None if unit.started_seconds is None else max(0.0, time.time() - unit.started_seconds)
        ),
        restarts=unit.restarts,
        reason="" if unit.running else _reason(unit),
    )


def state_of(unit: UnitFact) -> RoleState:
    """The state of a role from its unit's."""
    if unit.active == "activating" and unit.sub == "auto-restart":
        return RoleState.WAITING
    return _STATES.get(unit.active, RoleState.STOPPED)


def _reason(unit: UnitFact) -> str:
    if unit.result in ("", "success"):
        return ""
    return f"{unit.result}{f' ({unit.status})' if unit.status else ''}"


def batches(names: Sequence[str], serial: int) -> Iterator[list[str]]:
    """`serial` names at a time; 0 means all at once."""
    size = serial or max(1, len(names))
    for start in range(0, len(names), size):
        yield list(names[start : start + size])


def interrupt_script() -> str:
    """Interrupt the jobs of the coordinator's node; return when they have written their results."""
    return filled("converge/interrupt.sh")


def stop_script() -> str:
    """Stop and disable every role, and any job of an old coordinator; print the units that ran."""
    return filled("converge/stop.sh")


def restart_script(units: Sequence[str]) -> str:
    """Restart units and wait until they are up.

    SIGTERM ends a role at once. The engine gives the work of a worker that was not drained to
    another worker, and applies nothing twice.
    """
    of_units = [word for unit in units for word in ("-u", unit)]
    journal = quoted("journalctl", "-q", "-o", "cat", "--no-pager", "-n", 8, *of_units)
    return f"{quoted('systemctl', 'restart', *units)} || {{ {journal} >&2; exit 1; }}"


def restart_on(node: Connector, tasks: "Sequence[Task]") -> None:
    """Restart the units of these roles on one node. Raises ClusterError."""
    script = restart_script([unit_name(task) for task in tasks])
    run_as_root(node, shell(script), "not restarted", RESTART_SECONDS)


def _interrupt_on(node: Connector) -> None:
    node.run(shell(interrupt_script()), root=True, deadline_seconds=STOP_SECONDS)


def _stop_on(node: Connector) -> list[str]:
    return run_as_root(node, shell(stop_script()), "not stopped", STOP_SECONDS).split()


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
            spec = machines.of_node(node.name)
            rows.append(_Row(spec, survey.facts[node.name]).of(roles, lines))
    return tuple(rows)


def _lost(name: str, address: str, roles: Sequence[RoleStatus], reason: str) -> NodeRow:
    role_names = ", ".join(f"{role.name} ?" for role in roles)
    return NodeRow(name, address, role_names, "-", "-", "-", "-", "-", None, 0, reason)


class _Row:
    """The row of one node that answered, filled step by step."""

    def __init__(self, machines: "Machines", facts: MachineFacts) -> None:
        self._machines = machines
        self._inventory = machines.inventory
        self._name = machines.name
        self._facts = facts
        self._roles: list[str] = []
        self._ports: list[str] = []
        self._trouble: list[str] = []

    def of(self, roles: Sequence[RoleStatus], troubles: Sequence[str]) -> NodeRow:
        """Return the row, with the states of the node's roles."""
        self._add_roles(roles)
        if self._machines.watches:
            self._add_monitor()
        if self._machines.recognises:
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
        for task in self._machines.tasks:
            for port in (task.port, task.metrics_port):
                if not self._add_port(port, ROLE_ACCOUNT) and not self._trouble:
                    self._trouble.append(f"no process listens on port {port} of {task.name}")

    def _add_monitor(self) -> None:
        state = _state(self._facts.unit(units.MONITOR_UNIT))
        self._roles.append(f"monitor {state}")
        self._add_port(self._inventory.monitor.port, MONITOR_ACCOUNT)
        if state != "ready":
            self._trouble.append(
                f"monitor {state}: `journalctl -u {units.MONITOR_UNIT}` there says more"
            )

    def _add_service(self) -> None:
        state = _state(self._facts.unit(units.SERVICE_UNIT))
        listens = self._add_port(self._inventory.service.port, SERVICE_ACCOUNT)
        if state == "ready" and not listens:
            state = "waiting"
            self._trouble.append(
                "service waiting for its first version: `fab service promote --run RUN"
                " --inventory FILE`"
            )
        elif state != "ready":
            self._trouble.append(
                f"service {state}: `journalctl -u {units.SERVICE_UNIT}` there says more"
            )
        self._roles.append(f"service {state}")

    def _look_at_exporter(self) -> None:
        state = _state(self._facts.unit(f"{units.NODE_EXPORTER}.service"))
        if self._inventory.deployment.node_exporter and state != "ready":
            self._trouble.append(
                f"node exporter {state}: `journalctl -u {units.NODE_EXPORTER}` there says more"
            )


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
