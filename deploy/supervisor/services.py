"""The service manager of a cluster on this machine: its supervisor, over its own socket."""

import contextlib
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.ground.errors import ClusterError
from core.ground.locks import held_by
from core.ground.waiting import until
from deploy.cluster.fleet import Fleet
from deploy.cluster.services import (
    SETTLED,
    ClusterStatus,
    LogPlace,
    Report,
    RoleState,
    RoleStatus,
    Stopped,
    kept_tasks,
)
from deploy.common.command_line import command
from deploy.common.project import module_command
from deploy.common.state_folder import StateFolder
from deploy.supervisor import processes
from deploy.supervisor.control import ControlClient, NobodyListensError
from deploy.supervisor.role import Deadlines

if TYPE_CHECKING:
    from core.inventory import Inventory, Task

_LAUNCH_DEADLINE_SECONDS = 60.0
"""Time from its launch to its first answer: it reads the inventory and ends what an earlier one
left behind."""
_STOP_DEADLINE_SECONDS = Deadlines().stop_seconds + 10.0
_POLL_SECONDS = 0.05
_JOB_SECONDS = 70.0
"""Time that an interrupted job may take: it has 60 s for its result (`deploy.jobs.foreground_job`).
"""
_DOWN = (RoleState.STOPPED, RoleState.FAILED, RoleState.FROZEN)


def answer_seconds(roles: int) -> float:
    """Return the longest wait for one answer: the supervisor is busy while it starts its roles.

    65 roles took it 14 s (measured).
    """
    return 10.0 + 0.5 * roles


def _comes_free(lock: Path, deadline_seconds: float) -> bool:
    return until(lambda: held_by(lock) is None, deadline_seconds, _POLL_SECONDS)


class Supervised:
    """`ServiceManager` over the supervisor of one inventory. It ignores the connectors."""

    def __init__(self, inventory: "Inventory", overrides: Sequence[str]) -> None:
        """`overrides` are `KEY=VALUE` of this call; the supervisor reads the inventory itself."""
        self._inventory = inventory
        self._overrides = tuple(overrides)
        self._tasks = kept_tasks(inventory)
        self._folder = StateFolder.of(inventory.path, inventory.cluster)
        self._launching = threading.Lock()

    def client(self, deadline_seconds: float = 0.0) -> ControlClient:
        """Return a client of the supervisor.

        It waits `deadline_seconds` for an answer, or as long as so many roles may need.
        """
        deadline_seconds = max(deadline_seconds, answer_seconds(len(self._tasks)))
        stop_command = command("deploy stop", self._inventory.path)
        return ControlClient(
            self._folder.control_socket, deadline_seconds, stop_command=stop_command
        )

    def state(self, fleet: Fleet | None = None) -> ClusterStatus:
        """Return the state of the manager and of each role."""
        try:
            return self.client().status()
        except NobodyListensError:
            stopped = (RoleStatus.of(task, RoleState.STOPPED) for task in self._tasks)
            return ClusterStatus(self._inventory.cluster, tuple(stopped))

    def start(self, tasks: "Sequence[Task]", report: Report) -> ClusterStatus:
        """Start those of these roles that are down; the status once each is ready or has failed.

        The first start launches the supervisor, which holds the other roles back. Raises
        ClusterError.
        """
        names = [task.name for task in tasks]
        with self._launching:
            try:
                status = self.client().status()
            except NobodyListensError:
                self._launch([task.name for task in self._tasks if task.name not in names])
                status = self.client().status()
        down = [role.name for role in status.in_state(*_DOWN) if role.name in names]
        if down:
            return self._restarted(down, names, report)
        return self._settled(names, report)

    def restart(self, fleet: Fleet, tasks: "Sequence[Task]") -> ClusterStatus:
        """Restart these roles.

        With all roles a new supervisor starts, with the inventory as it is now.

        Raises ClusterError when nothing runs and only some roles are meant.
        """
        if len(tasks) < len(self._tasks):
            return self.restart_in_place([task.name for task in tasks])
        self.stop(fleet, [node.name for node in self._inventory.nodes])
        return self.start(tasks, lambda status: None)

    def restart_in_place(self, names: Sequence[str]) -> ClusterStatus:
        """Restart these roles (without names: all) under the supervisor that runs.

        Raises ClusterError without one.
        """
        return self._restarted(
            names, names or [task.name for task in self._tasks], lambda status: None
        )

    def stop(self, fleet: Fleet, nodes: Sequence[str]) -> Stopped:
        """Interrupt a job, then stop the roles of these nodes.

        The supervisor ends with the last role.
        """
        chosen = [task for task in self._tasks if task.node in nodes]
        if any(task.node in nodes for task in self._inventory.of_role("coordinator")):
            self._interrupt_job()
        if len(chosen) == len(self._tasks):
            return self._stop_supervisor(_by_node(chosen))
        try:
            alive = {role.name for role in self.client().status().roles if role.pid is not None}
            reply = self._request("hold", [task.name for task in chosen])
        except NobodyListensError:
            return Stopped({})
        ran = [task for task in chosen if task.name in alive]
        return Stopped(_by_node(ran), tuple(reply["killed"]))

    def logs(self) -> Sequence[LogPlace]:
        """Return where the logs of these roles lie.

        The supervisor and each role have a file; the coordinator's lies in the folder of its run.
        """
        (coordinator,) = self._inventory.of_role("coordinator")
        return [
            LogPlace("supervisor", coordinator.node, self._folder.log("supervisor")),
            *(LogPlace(task.name, task.node, self._folder.log(task.name)) for task in self._tasks),
            LogPlace(
                coordinator.name, coordinator.node, runs=str(Path(self._inventory.runs).absolute())
            ),
        ]

    def _launch(self, on_hold: Sequence[str]) -> None:
        """Detach a supervisor that does not start the roles `on_hold`, and wait until it answers.

        Raises ClusterError with its last words if it does not answer.
        """
        self._folder.create()
        # One that is just being stopped still holds the lock.
        until(
            lambda: self._answers() or held_by(self._folder.lock) is None,
            _STOP_DEADLINE_SECONDS,
            _POLL_SECONDS,
        )
        if self._answers():
            return
        settings = [word for override in self._overrides for word in ("--set", override)]
        settings += [word for name in on_hold for word in ("--hold", name)]
        log = self._folder.log("supervisor")
        command_line = module_command(
            "deploy.supervisor", "--inventory", str(self._inventory.path.resolve()), *settings
        )
        process = processes.LoggedProcess(command_line, log, start_new_session=True)

        def answers_or_ended() -> bool:
            # One that lost the race against another `start` ends, and the winner answers soon.
            return self._answers() or (
                process.poll() is not None and held_by(self._folder.lock) is None
            )

        until(answers_or_ended, _LAUNCH_DEADLINE_SECONDS, _POLL_SECONDS)
        if not self._answers():
            raise ClusterError(
                f"the supervisor of cluster {self._inventory.cluster} did not start: "
                f"{process.last_line() or 'it wrote nothing'}; its log is {log}"
            )

    def _stop_supervisor(self, roles: Mapping[str, Sequence[str]]) -> Stopped:
        """Have everything stopped, by force where a request is not enough, and clear up."""
        ran = held_by(self._folder.lock) is not None
        killed: list[str] = []
        try:
            reply = self.client(_STOP_DEADLINE_SECONDS).ask("stop")
            killed += reply["killed"]
        except NobodyListensError:
            pass  # none, or one just starting or ending: the lock knows
        except ClusterError:
            killed += self._kill()
        if not _comes_free(self._folder.lock, _STOP_DEADLINE_SECONDS):
            killed += self._kill()
        processes.clear_folder(self._folder)
        return Stopped(roles if ran else {}, tuple(killed))

    def _answers(self) -> bool:
        try:
            self.client().status()
        except NobodyListensError:
            return False
        return True

    def _kill(self) -> list[str]:
        """End one that does not answer; the kernel ends its roles with it."""
        pid = held_by(self._folder.lock)
        if pid is None:
            return []
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if not _comes_free(self._folder.lock, _STOP_DEADLINE_SECONDS):
            raise ClusterError(
                f"the supervisor of cluster {self._inventory.cluster} (pid {pid}) survives SIGKILL:"
                " it hangs in the kernel (a dead disk or network mount); reboot the machine"
            )
        return ["supervisor"]

    def _interrupt_job(self) -> None:
        job = held_by(self._folder.job_lock)
        if job is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(job, signal.SIGINT)
            if not _comes_free(self._folder.job_lock, _JOB_SECONDS):
                os.kill(job, signal.SIGKILL)  # its job dies with it

    def _request(self, verb: str, names: Sequence[str]) -> dict[str, Any]:
        return self.client(_STOP_DEADLINE_SECONDS).ask(verb, tasks=list(names))

    def _restarted(
        self, names: Sequence[str], awaited: Sequence[str], report: Report
    ) -> ClusterStatus:
        try:
            self._request("restart", names)
        except NobodyListensError as error:
            start = command("deploy start", self._inventory.path)
            raise ClusterError(
                f"cluster {self._inventory.cluster} is not running: `{start}` starts it"
            ) from error
        return self._settled(awaited, report)

    def _settled(self, names: Sequence[str], report: Report) -> ClusterStatus:
        # Between two changes of state lies at most one role's start.
        with contextlib.closing(self.client(Deadlines().ready_seconds + 30.0).watch()) as changes:
            for status in changes:
                report(status)
                if all(role.state in SETTLED for role in status.roles if role.name in names):
                    return status
        raise ClusterError(
            f"the supervisor of cluster {self._inventory.cluster} ended before its roles were"
            f" ready; `{command('deploy logs --role supervisor', self._inventory.path)}` shows why"
        )


def _by_node(tasks: "Sequence[Task]") -> dict[str, list[str]]:
    nodes = dict.fromkeys(task.node for task in tasks)
    return {node: [task.name for task in tasks if task.node == node] for node in nodes}
