"""The service manager of a cluster of machines: systemd, asked over each node's connector."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from core.ground.errors import ClusterError
from deploy.cluster.connector import Connector
from deploy.cluster.fleet import Fleet
from deploy.cluster.places import NodePlaces
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
from deploy.converge.apply import by_hand
from deploy.converge.machine_facts import MachineFacts, Questions, UnitFact
from deploy.converge.survey import Survey, machine_facts, survey
from deploy.render.units import SERVICE_UNIT, unit_name

if TYPE_CHECKING:
    from core.inventory import Inventory, Task

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
        results = fleet.each(_stop_on, nodes)
        stopped = {
            name: result for name, result in results.items() if not isinstance(result, ClusterError)
        }
        failed = {
            name: result for name, result in results.items() if isinstance(result, ClusterError)
        }
        return Stopped(stopped, failed=failed)

    def restart(self, fleet: Fleet, tasks: "Sequence[Task]") -> ClusterStatus:
        """Restart the units of these roles.

        Raises DegradedError with the node and the last lines of each role that does not start.

        A restart that returns has all of them ready: systemd waits for their READY=1.
        """
        of_node = {task.node: [one for one in tasks if one.node == task.node] for task in tasks}
        results = fleet.each(lambda node: restart_on(node, of_node[node.name]), list(of_node))
        failed = [str(result) for result in results.values() if isinstance(result, ClusterError)]
        if failed:
            raise DegradedError("\n".join(failed))
        ready = (RoleStatus.of(task, RoleState.READY) for task in tasks)
        return ClusterStatus(self._inventory.cluster, tuple(ready))

    def logs(self) -> Sequence[LogPlace]:
        """Return where the lines of roles and jobs lie.

        They are units in each node's journal, and the coordinator's run beside its unit's own
        lines.
        """
        found = [LogPlace("", node.name, unit="pscluster-*") for node in self._inventory.nodes]
        found += [LogPlace(task.name, task.node, unit=unit_name(task)) for task in self._tasks]
        found += [
            LogPlace("service", node, unit=SERVICE_UNIT) for node in self._inventory.service_nodes
        ]
        (task,) = self._inventory.of_role("coordinator")
        runs = self._places.runs(self._inventory)
        jobs = f"{self._places.state}/jobs"
        coordinator = LogPlace(task.name, task.node, runs=runs, jobs=jobs, user=self._places.user)
        return [*found, LogPlace(task.name, task.node, unit="pscluster-job@*"), coordinator]

    def _ask(self, node: Connector) -> MachineFacts:
        units = tuple(unit_name(task) for task in self._tasks if task.node == node.name)
        return machine_facts(node, Questions(units=units))


def role_states(inventory: "Inventory", seen: Survey[MachineFacts]) -> ClusterStatus:
    """Return one record a role.

    The roles of a node that does not answer have failed, and its answer is the reason.
    """
    return ClusterStatus(
        inventory.cluster, tuple(_role(task, seen) for task in kept_tasks(inventory))
    )


def _role(task: "Task", seen: Survey[MachineFacts]) -> RoleStatus:
    if task.node in seen.lost:
        reason = seen.lost[task.node].last_lines[0]
        return RoleStatus.of(task, RoleState.FAILED, reason=reason)
    facts = seen.facts.get(task.node)
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
    done = node.run(shell(script), root=True, deadline_seconds=RESTART_SECONDS)
    if not done.ok:
        raise ClusterError(
            f"{node.name}: not restarted: {' | '.join(done.last_lines[-3:])}; {by_hand(node)}"
        )


def _interrupt_on(node: Connector) -> None:
    node.run(shell(interrupt_script()), root=True, deadline_seconds=STOP_SECONDS)


def _stop_on(node: Connector) -> list[str]:
    done = node.run(shell(stop_script()), root=True, deadline_seconds=STOP_SECONDS)
    if not done.ok:
        raise ClusterError(
            f"{node.name}: not stopped: {' | '.join(done.last_lines[-3:])}; {by_hand(node)}"
        )
    return done.text.split()
