"""One role kept running: the thin shell around `RestartPolicy` on an event loop."""

import asyncio
import logging
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from signal import Signals
from typing import Any

from core.ground.errors import ClusterError
from core.inventory import Task
from core.logs.lines import read_line
from core.server.sockets import cut
from deploy.cluster.services import RoleState, RoleStatus
from deploy.supervisor.processes import (
    Decision,
    History,
    LaunchPlan,
    ProcessIdentity,
    RestartPolicy,
    RoleEnding,
    RoleProcess,
    anonymous_memory_bytes,
    is_frozen,
)

_SILENT = frozenset({-Signals.SIGKILL, -Signals.SIGTERM, -Signals.SIGINT})
"""Return codes of a process that was ended by a signal: its last line is about something else."""

_OF_TENSORFLOW = re.compile(r"(?P<level>[IWEF]) ")
_NOTHING_WRONG = frozenset({"debug", "info", "I"})


def last_words(line: str, role: str, address: str, return_code: int) -> str:
    """Return why the role ended, without time, name and address; empty where no line says.

    `role` is `ps:0`, `address` its `host:port`; `return_code` as `subprocess` gives it, negative
    for a signal.
    """
    if return_code in _SILENT:
        return ""
    logged = read_line(line)
    if logged:
        line = logged.message
        foreign = _OF_TENSORFLOW.match(logged.message)
        if (foreign["level"] if foreign and not logged.level else logged.level) in _NOTHING_WRONG:
            return ""
        if foreign and not logged.level:
            line = line[foreign.end() :]
        else:
            line = line.partition("\n")[0]
    for prefix in (f"{role} {address}: ", f"{role}: "):
        line = line.removeprefix(prefix)
    return line


_COMMAND_NOT_FOUND = 127

log = logging.getLogger("pscluster.supervisor")


@dataclass(frozen=True)
class Deadlines:
    """How long a role may take.

    A Pi 3 with a cold SD card needs minutes to load TensorFlow. A role promises to be gone a second
    after SIGTERM; one that is stopped or stuck never will be.
    """

    ready_seconds: float = 300.0
    stop_seconds: float = 5.0
    place_seconds: float = 20.0
    """A role that starts for longer holds up the others no more."""


class Role:
    """A task of the inventory, its present process, and the end of the earlier ones."""

    def __init__(
        self,
        plan: LaunchPlan,
        policy: RestartPolicy,
        deadlines: Deadlines,
        changed: Callable[[], None],
        places: asyncio.Semaphore,
    ) -> None:
        """`changed` is called after every change of state.

        A role takes one of `places` from its start until it is ready, has ended, or takes long.
        """
        self._places = places
        self.task = plan.task
        self._plan = plan
        self._policy = policy
        self._deadlines = deadlines
        self._changed = changed
        self._state = RoleState.STARTING
        self._reason = ""
        self._history = History()
        self._process: RoleProcess | None = None
        self._restarts = -1
        self._wake = asyncio.Event()
        self._stopping = self._fenced = self._restarting = False
        self._held = plan.on_hold

    async def keep(self) -> None:
        """Run the role until `stop`: start its process, wait for its end, decide, again."""
        while not self._stopping:
            if self._held:
                self._become(RoleState.STOPPED)
                self._wake.clear()
                await self._wake.wait()
                continue
            process = await self._started()
            if isinstance(process, RoleProcess):
                ending = await self._end_of(process)
            else:
                ending = process
            if self._stopping:
                break
            if self._held:
                continue
            if self._restarting:
                self._restarting = False
                self._history = self._policy.revived(self._history, ending.reached_ready)
                self._say(logging.INFO, "restarted on request")
                continue
            decision = self._policy.decide(ending, self._history)
            self._history = decision.history
            await self._abide_by(decision)
        self._become(RoleState.STOPPED)

    def reap(self) -> None:
        """Notice that the process has ended; for the loop's SIGCHLD handler."""
        if self._process is not None:
            self._process.reap()

    def notice_ready(self) -> None:
        """Note that the process reported readiness."""
        if self._process is not None and self._state is RoleState.STARTING:
            self._say(
                logging.INFO,
                f"ready after {self._process.uptime_seconds:.1f} s (pid {self._process.pid})",
            )
            self._process.settled.set()
            self._become(RoleState.READY)

    async def fence(self) -> int | None:
        """Kill the process at once and wait until it is dead; it is then started again.

        Returns the pid killed.
        """
        process = self._process
        if process is None:
            return None
        self._fenced = True
        process.kill()
        await process.ended.wait()
        return process.pid

    async def send_signal(self, number: Signals) -> int:
        """Stop the process, continue it, or `fence` it (SIGKILL), for fault injection; its pid.

        Raises ClusterError when the role has no process at the moment.
        """
        pid = self.pid
        if number is Signals.SIGKILL:
            pid = await self.fence()
        elif self._process is not None:
            self._process.send_signal(number)  # which looks whether it has ended
            if self._process.returncode is not None:
                pid = None
        if pid is None:
            raise ClusterError(
                f"{self.task.name} has no process to send {number.name} to: it is {self._state}"
            )
        return pid

    def cut_off(self, peer: Task) -> int | None:
        """Shut the process's connections to `peer`, for fault injection.

        Returns its pid, None where it had no such connection. Raises ClusterError when the role has
        no process, or the kernel does not let us.
        """
        pid = self.pid
        if pid is None:
            raise ClusterError(
                f"{self.task.name} has no process to cut off from {peer.name}: it is {self._state}"
            )
        try:
            if cut(pid, {(socket.gethostbyname(peer.host), peer.port)}):
                return pid
            return None
        except OSError as error:
            raise ClusterError(
                f"{self.task.name} cannot be cut off from {peer.name}: {error.strerror}. It takes"
                " Linux 5.6 or later and kernel.yama.ptrace_scope 0 or 1; root needs"
                " CAP_SYS_PTRACE besides"
            ) from None

    async def restart(self) -> None:
        """End the process, forgive its failures and start it again, also a failed or held role."""
        self._held = False
        if self._process is None:
            self._history = self._policy.revived(self._history)
            self._become(RoleState.STARTING)
            self._wake.set()
            return
        self._restarting = True
        await self._end_process()

    async def hold(self) -> bool:
        """End the process and start no other one until `restart`.

        Returns whether SIGTERM was not enough.
        """
        self._held = True
        return await self._stop_process()

    async def stop(self) -> bool:
        """End the process for good; whether SIGTERM was not enough."""
        self._stopping = True
        return await self._stop_process()

    async def _stop_process(self) -> bool:
        self._wake.set()
        if self._process is None:
            self._become(RoleState.STOPPED)
        else:
            self._become(RoleState.STOPPING)
        return await self._end_process()

    @property
    def pid(self) -> int | None:
        """Pid of the living process."""
        if self._process is None:
            return None
        return self._process.pid

    @property
    def identity(self) -> ProcessIdentity | None:
        """Identity of the living process."""
        if self._process is None:
            return None
        return self._process.identity

    def status(self) -> RoleStatus:
        """The record that `status` shows."""
        process = self._process
        state = self._state
        if process is not None and state is RoleState.READY and is_frozen(process.pid):
            state = RoleState.FROZEN
        figures: dict[str, Any] = {}
        if process is not None:
            figures = {
                "pid": process.pid,
                "anonymous_memory_bytes": anonymous_memory_bytes(process.pid),
                "uptime_seconds": round(process.uptime_seconds, 3),
            }
        restarts = max(0, self._restarts)
        return RoleStatus.of(self.task, state, restarts=restarts, reason=self._reason, **figures)

    async def _started(self) -> RoleProcess | RoleEnding:
        """Start the process once it has a place; how it ended if there is none."""
        if not (self._stopping or self._held):
            self._become(RoleState.STARTING)
        async with self._places:
            if self._stopping or self._held:
                return RoleEnding(0, 0.0, reached_ready=False)
            self._restarts += 1
            try:
                self._process = process = RoleProcess(self._plan)
            except OSError as error:
                self._reason = f"{self._plan.command[0]} cannot be started: {error.strerror}"
                return RoleEnding(_COMMAND_NOT_FOUND, 0.0, reached_ready=False)
            self._say(logging.INFO, f"started with pid {process.pid}")
            self._become(RoleState.STARTING)
            process.reap()  # it may have ended before the loop could hear of it
            seconds = min(self._deadlines.place_seconds, self._deadlines.ready_seconds)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.settled.wait(), seconds)
        return process

    async def _end_of(self, process: RoleProcess) -> RoleEnding:
        left_seconds = max(0.0, self._deadlines.ready_seconds - process.uptime_seconds)
        overdue = asyncio.get_running_loop().call_later(left_seconds, self._overdue, process)
        await process.ended.wait()
        overdue.cancel()
        code = process.returncode
        ending = RoleEnding(
            _COMMAND_NOT_FOUND if code is None else code,
            process.uptime_seconds,
            reached_ready=self._state in (RoleState.READY, RoleState.STOPPING),
            fenced=self._fenced,
        )
        self._reason = last_words(
            process.last_line(), self.task.name, self.task.address, ending.return_code
        )
        self._process = None
        self._fenced = False
        return ending

    async def _abide_by(self, decision: Decision) -> None:
        if self._reason:
            self._reason = f"{self._reason} [{decision.reason}]"
        else:
            self._reason = decision.reason
        self._wake.clear()
        if not decision.restart:
            self._say(logging.ERROR, f"not restarted: {self._reason}")
            self._become(RoleState.FAILED)
            await self._wake.wait()
            return
        self._say(logging.WARNING, f"restart in {decision.delay_seconds:.1f} s: {self._reason}")
        self._become(RoleState.WAITING)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), decision.delay_seconds)

    async def _end_process(self) -> bool:
        process = self._process
        if process is None:
            return False
        process.terminate()
        seconds = self._deadlines.stop_seconds
        why = f"still there {self._deadlines.stop_seconds:.0f} s after SIGTERM"
        if is_frozen(process.pid):
            seconds = 0.0
            why = "it is stopped and hears no SIGTERM"
        try:
            await asyncio.wait_for(process.ended.wait(), seconds)
        except TimeoutError:
            self._say(logging.WARNING, f"{why}: killed")
            process.kill()
            await process.ended.wait()
            return True
        return False

    def _overdue(self, process: RoleProcess) -> None:
        if self._process is process and self._state is RoleState.STARTING:
            self._say(
                logging.WARNING,
                f"not ready {self._deadlines.ready_seconds:.0f} s after its start: killed",
            )
            process.kill()

    def _become(self, state: RoleState) -> None:
        self._state = state
        if state in (RoleState.READY, RoleState.STOPPED):
            self._reason = ""
        self._changed()

    def _say(self, level: int, message: str) -> None:
        log.log(level, "%s: %s", self.task.name, message)
