"""Role processes: their start, Linux's account of them, their restarts, and what a kill left.

A role process dies with its supervisor, because the kernel kills it. `clear` waits until it has,
and ends any that got away, so that the ports are free when the same roles are started again. The
policy of restarts is pure: no process, no clock.
"""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from signal import Signals
from typing import Any

from core.control.client import key_of
from core.control.own_state import KEY_VARIABLE
from core.ground.children import dies_with_parent
from core.ground.errors import ClusterError, ExitCode
from core.ground.files import read_json, whole_file
from core.ground.locks import FileLock, LockHeldError
from core.ground.waiting import Backoff, until
from core.inventory import Inventory, Task
from core.server.options import explicit_flags, parse, placed
from deploy.common.command_line import named
from deploy.common.project import ROOT, module_command
from deploy.common.state_folder import StateFolder
from deploy.render.units import MODULES


@dataclass(frozen=True)
class ProcessIdentity:
    """A pid with its boot and start time in ticks, which no later process has."""

    pid: int
    start_ticks: int
    boot: str

    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        fields = _stat_fields(self.pid)
        return fields is not None and fields[0] != "Z" and self == identify(self.pid)

    def kill(self) -> bool:
        """End it with SIGKILL; False when it had ended by itself, and then nothing else is hit."""
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(self.pid)
            try:
                if (
                    self.alive()
                ):  # asked while the handle keeps the pid from meaning another process
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    return True
            finally:
                os.close(handle)
        return False


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of a living process, None where there is none."""
    fields = _stat_fields(pid)
    if fields is None:
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ProcessIdentity(pid, int(fields[19]), boot)


def is_frozen(pid: int) -> bool:
    """Return whether SIGSTOP or a debugger stopped it: it holds its port and answers nothing."""
    fields = _stat_fields(pid)
    return fields is not None and fields[0] in {"T", "t"}


def anonymous_memory_bytes(pid: int) -> int | None:
    """Return the anonymous memory in bytes (RssAnon of proc(5)); None for a dead process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return None


def _stat_fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/<pid>/stat from the state on; a name may hold spaces."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()


def remember(path: Path, alive: Iterable[ProcessIdentity]) -> None:
    """Write the processes now alive, replacing the file in one step."""
    content = json.dumps({"processes": [asdict(identity) for identity in alive]}) + "\n"
    with whole_file(path) as stream:
        stream.write(content.encode())


_DEATH_SECONDS = 10.0


def clear(path: Path) -> tuple[int, ...]:
    """End every remembered process that still lives, forget all, and return the killed pids.

    The caller holds the cluster's lock: the processes of a living supervisor are remembered in the
    same file. Raises ClusterError naming the pids that survive SIGKILL until the deadline (a
    process hung in the kernel).
    """
    try:
        remembered = [ProcessIdentity(**record) for record in read_json(path)["processes"]]
    except (OSError, ValueError, KeyError, TypeError):  # there is no file, or it cannot be read
        remembered = []
    living = [identity for identity in remembered if identity.kill()]
    if not until(lambda: not any(map(ProcessIdentity.alive, living)), _DEATH_SECONDS):
        remaining = [identity.pid for identity in living if identity.alive()]
        raise ClusterError(
            f"processes {remaining} of an earlier supervisor do not die within"
            f" {_DEATH_SECONDS:.0f} s of SIGKILL; they hang in the kernel (a dead disk or"
            " network mount): reboot the machine"
        )
    path.unlink(missing_ok=True)
    return tuple(identity.pid for identity in living)


def clear_folder(folder: StateFolder) -> bool:
    """Clear away what a dead supervisor left in `folder`.

    Returns False, with nothing touched, while one lives. Raises ClusterError as `clear` does. It
    holds the lock meanwhile, because a `start` may follow upon the end that a `stop` has waited
    for.
    """
    if not folder.path.exists():
        return True
    try:
        lock = FileLock(folder.lock)
    except LockHeldError:
        return False
    with lock:
        clear(folder.roles)
        folder.remove_sockets()
        folder.pid.unlink(missing_ok=True)
    return True


LARGEST_BYTES = 8 * 2**20
"""A log beyond this is set aside as `<name>.log.1` when its process starts: an SD card is small."""

_LOOK_BACK_BYTES = 65536


def set_aside_if_large(log: Path) -> None:
    """Make way for a new log when this one is beyond LARGEST_BYTES; one earlier log is kept."""
    with suppress(FileNotFoundError):
        if log.stat().st_size > LARGEST_BYTES:
            log.replace(log.with_name(log.name + ".1"))


def last_line(log: Path, since: int = 0) -> str:
    """Return the last non-empty line from byte `since` on; empty without one.

    It looks at the last 64 KiB.
    """
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(since, end - _LOOK_BACK_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


class LoggedProcess(subprocess.Popen[bytes]):
    """A process that writes to the end of a log."""

    def __init__(self, command: Sequence[str], log: Path, **options: Any) -> None:
        """Start it. Raises OSError."""
        set_aside_if_large(log)
        self._log = log
        with log.open("ab") as stream:
            self._log_start = stream.tell()
            super().__init__(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                **options,
            )

    def last_line(self) -> str:
        """Return its last line: a process that cannot start says why in one line."""
        return last_line(self._log, self._log_start)


@dataclass(frozen=True)
class LaunchPlan:
    """What to start for a task: the command line, the socket for its readiness, its log file.

    A role that is `on_hold` starts on the first request for a restart. `key` is what its callers
    have to know (docs/security.md).
    """

    task: Task
    command: tuple[str, ...]
    notify_socket: Path
    log: Path
    on_hold: bool = False
    key: str | None = field(default=None, repr=False)


class RoleProcess(LoggedProcess):
    """A started child. Only the event loop's thread may start one: see `dies_with_parent`."""

    def __init__(self, plan: LaunchPlan) -> None:
        """Start the process. Raises OSError when that is impossible."""
        environment = {
            **os.environ,
            "NOTIFY_SOCKET": str(plan.notify_socket),
            "PYTHONUNBUFFERED": "1",
        }
        if plan.key is not None:
            environment[KEY_VARIABLE] = plan.key
        super().__init__(plan.command, plan.log, env=environment, preexec_fn=dies_with_parent())
        self._started = time.monotonic()
        self.ended = asyncio.Event()
        self.settled = asyncio.Event()
        """Set once it is ready or has ended."""
        self.identity: ProcessIdentity | None = identify(self.pid)

    @property
    def uptime_seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def reap(self) -> None:
        """Collect its exit status and set `ended` if it has ended; for the handler of SIGCHLD."""
        if self.poll() is not None:
            self.ended.set()
            self.settled.set()


def role_launches(
    inventory: Inventory,
    folder: StateFolder,
    on_hold: Sequence[str] = (),
    token: str | None = None,
) -> list[LaunchPlan]:
    """Return how to start each role that stays up; those of `on_hold` wait.

    The flags say all: a role that reads the inventory itself takes 0.3 s of processor time longer,
    half a minute of two cores for 128 workers (measured).
    """
    launches = []
    for task in inventory.tasks():
        if task.role != "coordinator":
            flags = ["--inventory", str(inventory.path), "--task", str(task.index)]
            role = placed(task.role, inventory, task, parse(task.role, flags))
            command_line = module_command(MODULES[task.role], *explicit_flags(role))
            log = folder.log(task.name)
            waits = task.name in on_hold
            key = key_of(token, task.name)
            launches.append(LaunchPlan(task, command_line, folder.notify_socket, log, waits, key))
    return launches


HOPELESS_AT_ANY_TIME = frozenset(
    {ExitCode.BAD_USAGE, ExitCode.WHEEL_MISSING, ExitCode.ILLEGAL_INSTRUCTION, -Signals.SIGILL}
)
"""Return codes that the same command on the same machine gives every time."""

HOPELESS_AT_FIRST = frozenset({ExitCode.PORT_TAKEN, ExitCode.TOO_LITTLE_MEMORY})
"""Exit codes that are a misconfiguration before the role was ever ready, and may pass by themselves
afterwards (an outgoing connection that borrowed the port while the role was down, a job that filled
the memory)."""


@dataclass(frozen=True)
class RoleEnding:
    """How a role process ended: `return_code` as `subprocess` gives it, negative for a signal."""

    return_code: int
    uptime_seconds: float
    reached_ready: bool
    fenced: bool = False

    def describe(self) -> str:
        """`exit code 20 (PORT_TAKEN)`, `signal 9 (SIGKILL)`."""
        return named(self.return_code)


@dataclass(frozen=True)
class History:
    """What the policy remembers of a role.

    These are its failures since it was last healthy, and whether it ever was ready.
    """

    failures: int = 0
    ever_ready: bool = False


@dataclass(frozen=True)
class Decision:
    """Start the role after `delay_seconds`, or leave it failed; `reason` has the numbers."""

    restart: bool
    delay_seconds: float
    reason: str
    history: History


@dataclass(frozen=True)
class RestartPolicy:
    """Doubling delays between restarts, forgotten after a healthy minute, and an end to them.

    A role that was never ready gets `unready_limit` attempts: a person waits for the answer of
    `start`. One that has worked before gets `limit`, because the others' training can outlast a bad
    patch of it.
    """

    backoff: Backoff = field(default_factory=Backoff)
    healthy_seconds: float = 60.0
    unready_limit: int = 3
    limit: int = 10

    def decide(self, ending: RoleEnding, history: History) -> Decision:
        """The decision for one ending, with the history to hand in next time."""
        ever_ready = history.ever_ready or ending.reached_ready
        healthy = ending.reached_ready and ending.uptime_seconds >= self.healthy_seconds
        if healthy:
            past = 0
        else:
            past = history.failures
        if ending.fenced or ending.return_code == ExitCode.RESTART_ASKED:
            if ending.fenced:
                reason = "killed on request"
            else:
                reason = "on request, or for its threads"
            return Decision(True, 0.0, reason, History(past, ever_ready))
        now = History(past + 1, ever_ready)
        what = f"ended with {ending.describe()} after {ending.uptime_seconds:.1f} s"
        if ever_ready:
            hopeless = HOPELESS_AT_ANY_TIME
        else:
            hopeless = HOPELESS_AT_ANY_TIME | HOPELESS_AT_FIRST
        if ending.return_code in hopeless:
            return Decision(False, 0.0, f"{what}; a restart would end the same way", now)
        if ever_ready:
            allowed = self.limit
            kind = "healthy"
        else:
            allowed = self.unready_limit
            kind = "ready"
        if now.failures >= allowed:
            reason = f"{what}; {now.failures} of {allowed} attempts ended without it being {kind}"
            return Decision(False, 0.0, reason, now)
        delay = self.backoff.seconds(now.failures)
        return Decision(True, delay, f"{what}; failure {now.failures} of {allowed}", now)

    def revived(self, history: History, reached_ready: bool = False) -> History:
        """The history of a role after a requested restart: its failures are forgiven."""
        return History(failures=0, ever_ready=history.ever_ready or reached_ready)
