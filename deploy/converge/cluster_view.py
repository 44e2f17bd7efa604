"""The roles of a cluster as systemd on each node tells them. Pure."""

import time
from typing import TYPE_CHECKING

from deploy.cluster.role_status import ClusterStatus, RoleState, RoleStatus
from deploy.converge.deployment import Survey
from deploy.converge.machine_facts import UnitFact
from deploy.render.roles import MODULES, unit_name

if TYPE_CHECKING:
    from cluster.inventory import Inventory, Task

_STATES = {
    "active": RoleState.READY,
    "reloading": RoleState.READY,
    "activating": RoleState.STARTING,
    "deactivating": RoleState.STOPPING,
    "failed": RoleState.FAILED,
    "inactive": RoleState.STOPPED,
}


def cluster_status(inventory: "Inventory", survey: Survey) -> ClusterStatus:
    """One record a role; a node that does not answer has failed roles, with what it says instead."""
    kept = [task for task in inventory.tasks() if task.role in MODULES]
    return ClusterStatus(inventory.cluster, tuple(_role(task, survey) for task in kept))


def _role(task: "Task", survey: Survey) -> RoleStatus:
    place = (task.role, task.index, task.node, task.address, task.metrics_address)
    if task.node in survey.lost:
        return RoleStatus(*place, RoleState.FAILED, reason=survey.lost[task.node].last_lines[0])
    if task.node not in survey.facts:
        return RoleStatus(*place, RoleState.STOPPED)
    unit = survey.facts[task.node].unit(unit_name(task))
    if unit is None:
        return RoleStatus(*place, RoleState.STOPPED)
    return RoleStatus(
        *place,
        state(unit),
        pid=unit.pid or None,
        anonymous_memory_bytes=unit.anonymous_memory_bytes,
        uptime_seconds=None if unit.started_seconds is None else max(0.0, time.time() - unit.started_seconds),
        restarts=unit.restarts,
        reason="" if unit.running else _reason(unit),
    )


def state(unit: UnitFact) -> RoleState:
    """The state of a role from its unit's."""
    if unit.active == "activating" and unit.sub == "auto-restart":
        return RoleState.WAITING
    return _STATES.get(unit.active, RoleState.STOPPED)


def _reason(unit: UnitFact) -> str:
    return "" if unit.result in ("", "success") else f"{unit.result}{f' ({unit.status})' if unit.status else ''}"
