"""`python -m deploy.supervisor --inventory FILE [--set KEY=VALUE ...]`.

`fab deploy start` starts and detaches it.
"""

import argparse
import asyncio
import logging
import os
import signal
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import core.inventory
from core.control.door import raise_limit
from core.control.own_state import VARIABLE
from core.ground.errors import ClusterError, UsageError
from core.ground.locks import FileLock, LockHeldError
from core.logs import say
from core.logs.lines import LogSettings, Speaker, begin
from core.metrics.process import usable_cores
from deploy.cluster.services import ClusterStatus
from deploy.common.command_line import command
from deploy.common.project import OWNER
from deploy.common.state_folder import StateFolder
from deploy.supervisor import processes
from deploy.supervisor.control import ControlServer
from deploy.supervisor.processes import LaunchPlan, RestartPolicy, role_launches
from deploy.supervisor.role import Deadlines, Role


def open_owner() -> int | None:
    """Return a descriptor that becomes readable when the owner is gone, None without one.

    The variable leaves the environment. For an owner that is gone already the descriptor is
    readable at once.
    """
    named = os.environ.pop(OWNER, "")
    if not named.isdecimal():
        return None
    with suppress(ProcessLookupError):
        return os.pidfd_open(int(named))
    gone, other = os.pipe()
    os.close(other)
    return gone


PLACES_OF_CORE = 2
"""Roles that start at one time for each core. All of 136 at once leave the supervisor no time to
answer: `status` waited 78 s on a busy machine (measured)."""

_CREDENTIALS = struct.Struct("3i")

_INJECTABLE = {number.name: number for number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL)}
"""The faults a process can be given from outside; the others are for the role itself to answer."""

log = logging.getLogger("pscluster.supervisor")


class Supervisor:
    """Keeps `launches` running until a `stop`. The caller holds the cluster's lock."""

    def __init__(
        self,
        cluster: str,
        launches: Sequence[LaunchPlan],
        folder: StateFolder,
        policy: RestartPolicy,
        deadlines: Deadlines,
    ) -> None:
        """Take one launch plan for each task, in the order of the inventory."""
        self._cluster = cluster
        self._folder = folder
        places = asyncio.Semaphore(PLACES_OF_CORE * max(2, usable_cores()))
        self._roles = {
            plan.task.name: Role(plan, policy, deadlines, self._role_changed, places)
            for plan in launches
        }
        self._server = ControlServer(folder.control_socket, self.answer, self.status)
        self._finished = asyncio.Event()
        self._stopping: asyncio.Task[list[str]] | None = None

    async def run(self) -> None:
        """Start everything, serve, and return once everything is stopped."""
        loop = asyncio.get_running_loop()
        notify = _notify_socket(self._folder.notify_socket)
        loop.add_reader(notify, self._receive_notices, notify)
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_because, number.name)
        owner = open_owner()
        if owner is not None:
            loop.add_reader(
                owner, self._stop_because, "the process that started the cluster has ended"
            )
        try:
            await self._server.open()
            async with asyncio.TaskGroup() as group:
                for role in self._roles.values():
                    group.create_task(role.keep())
            await self._finished.wait()
        finally:
            await self._server.close()
            if owner is not None:
                loop.remove_reader(owner)
                os.close(owner)
            loop.remove_reader(notify)
            notify.close()
            self._folder.roles.unlink(missing_ok=True)

    def status(self) -> ClusterStatus:
        """The roles as they are now."""
        roles = tuple(role.status() for role in self._roles.values())
        return ClusterStatus(self._cluster, roles, os.getpid())

    async def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to one request. Raises ClusterError for one that cannot be met."""
        verb = request.get("verb")
        if verb == "status":
            return self.status().to_json()
        if verb == "stop":
            return {"killed": await self.stop()}
        if self._stopping is not None:
            raise ClusterError("the cluster is being stopped: start it when that is done")
        if verb == "kill":
            role = self._named([request.get("task")])[0]
            log.warning(
                "%s: to be killed on request: %s",
                role.task.name,
                request.get("reason", "no reason given"),
            )
            return {"task": role.task.name, "pid": await role.fence()}
        if verb == "signal":
            number = _INJECTABLE.get(str(request.get("signal")))
            role = self._named([request.get("task")])[0]
            if number is None:
                raise UsageError(
                    f"expected the signal {', '.join(_INJECTABLE)}, got {request.get('signal')!r}"
                )
            log.warning("%s: %s on request", role.task.name, number.name)
            return {"task": role.task.name, "pid": await role.send_signal(number)}
        if verb == "cut":
            role, peer = self._named([request.get("task"), request.get("peer")])
            log.warning(
                "%s: its connections to %s are cut on request", role.task.name, peer.task.name
            )
            return {"task": role.task.name, "pid": role.cut_off(peer.task)}
        if verb == "restart":
            if request.get("tasks"):
                roles = self._named(request["tasks"])
            else:
                roles = list(self._roles.values())
            await asyncio.gather(*(role.restart() for role in roles))
            return {"tasks": [role.task.name for role in roles]}
        if verb == "hold":
            roles = self._named(request.get("tasks") or ())
            return {"killed": await _killed(roles, Role.hold)}
        raise UsageError(
            "expected the verb status, watch, stop, hold, kill, signal, cut or restart, got"
            f" {verb!r}"
        )

    async def stop(self) -> list[str]:
        """Stop every role, side by side; names of those that had to be killed.

        Asking twice waits for the same stop.
        """
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop_roles())
        return await asyncio.shield(self._stopping)

    async def _stop_roles(self) -> list[str]:
        killed = await _killed(list(self._roles.values()), Role.stop)
        log.info("stopped %d roles, %d of them by SIGKILL", len(self._roles), len(killed))
        self._finished.set()
        return killed

    def _stop_because(self, reason: str) -> None:
        if self._stopping is None:
            log.info("%s: stopping", reason)
            self._stopping = asyncio.create_task(self._stop_roles())

    def _named(self, names: Sequence[Any]) -> list[Role]:
        unknown = [name for name in names if name not in self._roles]
        if unknown:
            raise UsageError(
                f"no role {', '.join(map(repr, unknown))}; this cluster has"
                f" {', '.join(self._roles)}"
            )
        return [self._roles[name] for name in names]

    def _receive_notices(self, notify: socket.socket) -> None:
        for pid in _ready_pids(notify):
            for role in self._roles.values():
                if role.pid == pid:
                    role.notice_ready()

    def _reap(self) -> None:
        for role in self._roles.values():
            role.reap()

    def _role_changed(self) -> None:
        alive = (role.identity for role in self._roles.values())
        try:
            processes.remember(
                self._folder.roles, [identity for identity in alive if identity is not None]
            )
        except OSError as error:  # a full disk must not end a running cluster
            log.warning("%s cannot be written (%s): ignored", self._folder.roles, error.strerror)
        self._server.changed()


def _notify_socket(path: Path) -> socket.socket:
    """The receiving end of sd_notify(3); the kernel gives it the senders' pids."""
    path.unlink(missing_ok=True)
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    receiver.bind(os.fspath(path))
    return receiver


def _ready_pids(notify: socket.socket) -> Iterator[int]:
    """The processes that reported readiness since the last call."""
    with suppress(BlockingIOError):
        while True:
            data, ancillary, _, _ = notify.recvmsg(4096, socket.CMSG_SPACE(_CREDENTIALS.size))
            for level, kind, content in ancillary:
                of_sender = (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS)
                if of_sender and b"READY=1" in data.splitlines():
                    yield _CREDENTIALS.unpack(content[: _CREDENTIALS.size])[0]


async def _killed(roles: Sequence[Role], end: Callable[[Role], Awaitable[bool]]) -> list[str]:
    """Names of those that did not `end` by themselves."""
    slow = await asyncio.gather(*map(end, roles))
    return [role.task.name for role, was_killed in zip(roles, slow, strict=True) if was_killed]


def serve(
    cluster: str,
    launches: Sequence[LaunchPlan],
    folder: StateFolder,
    inventory: Path,
    policy: RestartPolicy = RestartPolicy(),  # noqa: B008  all are frozen
    deadlines: Deadlines = Deadlines(),  # noqa: B008
    logs: LogSettings = LogSettings(),  # noqa: B008
) -> None:
    """Be the supervisor of `cluster`, started from the file `inventory`, until it is stopped.

    Raises ClusterError when it already has one.
    """
    begin(Speaker("supervisor"), logs)
    folder.create()
    try:
        lock = FileLock(folder.lock)
    except LockHeldError as error:
        raise ClusterError(
            f"cluster {cluster} already has a supervisor (pid {error.pid}): "
            f"`{command('deploy status', inventory)}` shows it"
        ) from error
    with lock:
        killed = processes.clear(folder.roles)
        log.info("supervisor of cluster %s started with pid %d", cluster, os.getpid())
        if killed:
            log.warning(
                "processes %s of an earlier supervisor were still there: killed", list(killed)
            )
        folder.pid.write_text(f"{os.getpid()}\n")
        try:
            asyncio.run(Supervisor(cluster, launches, folder, policy, deadlines).run())
        finally:
            folder.remove_sockets()
            folder.pid.unlink(missing_ok=True)
    log.info("supervisor of cluster %s ended", cluster)


def main() -> int:
    """Supervise one cluster until it is stopped; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.supervisor", description=__doc__)
    parser.add_argument("--inventory", type=Path, required=True, help="the cluster to keep running")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of it"
    )
    parser.add_argument(
        "--hold", action="append", default=[], metavar="TASK", help="do not start this role yet"
    )
    flags = parser.parse_args()
    raise_limit()
    try:
        inventory = core.inventory.load(flags.inventory, flags.set)
        folder = StateFolder.of(inventory.path, inventory.cluster)
        folder.create()
        token = folder.token()
        os.environ.pop(VARIABLE, None)  # a role gets its own key alone
        launches = role_launches(inventory, folder, flags.hold, token)
        logs = LogSettings(inventory.logging.format, inventory.logging.level)
        serve(inventory.cluster, launches, folder, inventory.path, logs=logs)
    except ClusterError as error:
        say(error, error=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
