"""The service manager of a cluster on this machine: its supervisor, asked over the supervisor's own socket."""

import contextlib
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import ClusterError
from deploy.cluster.cluster import Fleet
from deploy.cluster.selection import kept_tasks
from deploy.cluster.services import SETTLED, ClusterStatus, LogPlace, Report, RoleState, RoleStatus, Stopped
from deploy.common.command_line import command
from deploy.common.file_lock import held_by
from deploy.common.state_folder import StateFolder
from deploy.supervisor.control_client import NobodyListensError
from deploy.supervisor.handle import SupervisorHandle, wait_until
from deploy.supervisor.role import Deadlines

if TYPE_CHECKING:
    from cluster.inventory import Inventory, Task

_JOB_SECONDS = 70.0
"""How long an interrupted job may take: it has 60 s for its result (`deploy.jobs.foreground_job`)."""
_DOWN = (RoleState.STOPPED, RoleState.FAILED, RoleState.FROZEN)


class Supervised:
    """`ServiceManager` over the supervisor of one inventory. It ignores the connectors."""

    def __init__(self, inventory: "Inventory", overrides: Sequence[str]) -> None:
        """`overrides` are `KEY=VALUE` of this call; the supervisor reads the inventory itself."""
        self._inventory = inventory
        self._overrides = tuple(overrides)
        self._tasks = kept_tasks(inventory)
        self._folder = StateFolder.beside(inventory.path, inventory.cluster)
        self._supervisor = SupervisorHandle(inventory.cluster, self._folder, inventory.path, len(self._tasks))
        self._launching = threading.Lock()

    def state(self, fleet: Fleet | None = None) -> ClusterStatus:
        """See `ServiceManager`."""
        try:
            return self._supervisor.client().status()
        except NobodyListensError:
            return self._stopped()

    def start(self, tasks: "Sequence[Task]", report: Report) -> ClusterStatus:
        """Start those of these roles that are down; the status once each is ready or has failed.

        The first start launches the supervisor, which holds the other roles back. Raises ClusterError.
        """
        names = [task.name for task in tasks]
        with self._launching:
            try:
                status = self._supervisor.client().status()
            except NobodyListensError:
                held = [task.name for task in self._tasks if task.name not in names]
                self._supervisor.launch(self._inventory.path.resolve(), self._overrides, held)
                status = self._supervisor.client().status()
        down = [role.name for role in status.in_state(*_DOWN) if role.name in names]
        return self._restarted(down, names, report) if down else self._settled(names, report)

    def restart(self, fleet: Fleet, tasks: "Sequence[Task]") -> ClusterStatus:
        """See `ServiceManager`. With all roles a new supervisor starts, with the inventory as it is now.

        Raises ClusterError when nothing runs and only some roles are meant.
        """
        if len(tasks) < len(self._tasks):
            return self.restart_in_place([task.name for task in tasks])
        self.stop(fleet, [node.name for node in self._inventory.nodes])
        return self.start(tasks, lambda status: None)

    def restart_in_place(self, names: Sequence[str]) -> ClusterStatus:
        """Restart these roles (without names: all) under the supervisor that runs. Raises ClusterError without one."""
        return self._restarted(names, names or [task.name for task in self._tasks], lambda status: None)

    def stop(self, fleet: Fleet, nodes: Sequence[str]) -> Stopped:
        """See `ServiceManager`. The supervisor ends with the last role."""
        chosen = [task for task in self._tasks if task.node in nodes]
        if any(task.node in nodes for task in self._inventory.of_role("coordinator")):
            self._interrupt_job()
        if len(chosen) == len(self._tasks):
            report = self._supervisor.stop()
            ran = chosen if report.ran else []
            return Stopped(_by_node(ran), report.killed, inventory=report.inventory)
        try:
            alive = {role.name for role in self._supervisor.client().status().roles if role.pid is not None}
            reply = self._asked("hold", [task.name for task in chosen])
        except NobodyListensError:
            return Stopped({})
        ran = [task for task in chosen if task.name in alive]
        return Stopped(_by_node(ran), tuple(reply["killed"]), inventory=reply["inventory"])

    def logs(self) -> Sequence[LogPlace]:
        """See `ServiceManager`. A file for each role and the supervisor; the coordinator's in the folder of its run."""
        (coordinator,) = self._inventory.of_role("coordinator")
        return [
            LogPlace("supervisor", coordinator.node, self._folder.log("supervisor")),
            *(LogPlace(task.name, task.node, self._folder.log(task.name)) for task in self._tasks),
            LogPlace(coordinator.name, coordinator.node, runs=str(Path(self._inventory.runs).absolute())),
        ]

    def _interrupt_job(self) -> None:
        job = held_by(self._folder.job_lock)
        if job is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(job, signal.SIGINT)
            if not wait_until(lambda: held_by(self._folder.job_lock) is None, _JOB_SECONDS):
                os.kill(job, signal.SIGKILL)  # its job dies with it

    def _asked(self, verb: str, names: Sequence[str]) -> dict[str, Any]:
        return self._supervisor.client(Deadlines().stop_seconds + 10.0).ask(verb, tasks=list(names))

    def _restarted(self, names: Sequence[str], awaited: Sequence[str], report: Report) -> ClusterStatus:
        try:
            self._asked("restart", names)
        except NobodyListensError as error:
            start = command("deploy start", self._inventory.path)
            raise ClusterError(f"cluster {self._inventory.cluster} is not running: `{start}` starts it") from error
        return self._settled(awaited, report)

    def _stopped(self) -> ClusterStatus:
        roles = (
            RoleStatus(task.role, task.index, task.node, task.address, task.metrics_address, RoleState.STOPPED)
            for task in self._tasks
        )
        return ClusterStatus(self._inventory.cluster, tuple(roles))

    def _settled(self, names: Sequence[str], report: Report) -> ClusterStatus:
        # Between two changes of state lies at most one role's start.
        with contextlib.closing(self._supervisor.client(Deadlines().ready_seconds + 30.0).watch()) as changes:
            for status in changes:
                report(status)
                if all(role.state in SETTLED for role in status.roles if role.name in names):
                    return status
        raise ClusterError(
            f"the supervisor of cluster {self._inventory.cluster} ended before its roles were ready; "
            f"`{command('deploy logs --role supervisor', self._inventory.path)}` shows why"
        )


def _by_node(tasks: "Sequence[Task]") -> dict[str, list[str]]:
    nodes = dict.fromkeys(task.node for task in tasks)
    return {node: [task.name for task in tasks if task.node == node] for node in nodes}
