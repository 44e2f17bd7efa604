"""One process of a program: in a session of its own, read, measured, and ended whole.

What it leaves behind is found by a mark in the environment, and a child may have an environment of
its own. So this process is also the reaper of orphans (PR_SET_CHILD_SUBREAPER, prctl(2)): whatever
the program leaves, in whatever session, becomes its child.
"""

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import Signals

from cluster.programs.gatekeeper import GateKeeper
from cluster.programs.program import MARK_VARIABLE
from core.cage.landlock import Cage
from core.ground.children import Child
from core.ground.errors import ClusterError
from core.ground.waiting import until

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h

ProcessId = tuple[int, str]
"""Pid and when it started, in ticks since the machine did: a pid alone may be another process's by
now."""

_programs: set[int] = set()
_own_children: set[ProcessId] = set()
"""Children that this process had before it ran a program."""
_adopted: set[ProcessId] = set()
_reapers: set[int] = set()
"""The pid of this process, once it is the reaper. Until then all its children are its own."""


def become_reaper() -> None:
    """Become the reaper: call it before a program starts, in the process that starts it."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if not _programs:
        _own_children.clear()
        _own_children.update(_children().keys() - _adopted)
    _reapers.add(os.getpid())


def note_program(pid: int) -> None:
    """Note that this child is a program, and no orphan."""
    _programs.add(pid)


def forget_program(pid: int) -> None:
    """The program has ended and was waited for."""
    living_orphans()
    _programs.discard(pid)


def living_orphans() -> list[int]:
    """Pids of the orphans of all programs of this process; those that have ended are waited for."""
    if os.getpid() not in _reapers:
        return []
    children = _children()
    orphans = {
        child for child in children if child not in _own_children and child[0] not in _programs
    }
    _adopted.intersection_update(children)
    _adopted.update(orphans)
    for child in orphans:
        if children[child] == "Z":
            with suppress(ChildProcessError):
                os.waitpid(child[0], os.WNOHANG)
    return [pid for pid, since in orphans if children[pid, since] != "Z"]


def _children() -> dict[ProcessId, str]:
    """Children of this process and the state of each."""
    own_pid = str(os.getpid())
    states = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if fields[1] == own_pid:
                    states[int(entry.name), fields[19]] = fields[0]
    return states


READ_BYTES = 1 << 16


@dataclass(frozen=True)
class Usage:
    """What a process and its children use: CPU seconds, resident bytes now and at most, number."""

    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    peak_bytes: int = 0
    processes: int = 0


class ProgramProcess:
    """A running program. Make it in the main thread: the kernel kills it when that thread ends."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        guarded_port: int | None = None,
        servers: int | None = None,
        cage: Cage | None = None,
    ) -> None:
        """Start it in `folder`, without standard input, in `cage` if any. Raises ClusterError.

        Only this account, root and that of its parameter `servers` reach the `guarded_port` of it
        and of its children.
        """
        other_accounts = () if servers is None else (servers,)
        if guarded_port is None:
            self._gate = None
        else:
            self._gate = GateKeeper(guarded_port, other_accounts)
        become_reaper()
        try:
            self._process = Child(
                command,
                environment=environment,
                folder=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                new_session=True,
                before_exec=_before(self._gate, cage),
            )
        except (OSError, subprocess.SubprocessError) as problem:
            why = getattr(problem, "strerror", None) or problem
            if self._gate is not None:
                self._gate.close()
            raise ClusterError(f"{command[0]}: the program cannot be started: {why}") from None
        note_program(self.pid)
        if self._gate is not None:
            self._gate.begin()
        assert self._process.stdout is not None
        self._pipe = self._process.stdout
        os.set_blocking(self._pipe.fileno(), False)
        self._cpu_seconds = 0.0
        self._peak_bytes = 0

    @property
    def pid(self) -> int:
        """Return the id of the process itself, which leads its session."""
        return self._process.pid

    def fileno(self) -> int:
        """Return the descriptor of the pipe with its output, for a selector."""
        return self._pipe.fileno()

    def read_output(self) -> bytes | None:
        """Return what it printed since; None if nothing waits, no bytes once all writers closed."""
        try:
            return os.read(self._pipe.fileno(), READ_BYTES)
        except BlockingIOError:
            return None

    def poll(self) -> int | None:
        """Its return code, negative for a signal; None while it runs.

        What is left of its group ends with it.
        """
        if self._process.returncode is None:
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return None
            self._reap()
        return self._process.returncode

    def _reap(self) -> None:
        self.ask(Signals.SIGKILL)  # before: while it is not reaped, its number names no other group
        _, status, used = os.wait4(self.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        forget_program(self.pid)
        self._cpu_seconds = used.ru_utime + used.ru_stime
        self._peak_bytes = max(self._peak_bytes, used.ru_maxrss * 1024)

    def ask(self, number: Signals) -> None:
        """Send the signal to its whole group, as a terminal does."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def use(self) -> Usage:
        """Return what it and its children use now, and the most memory so far.

        Of a process that has ended these are the totals.
        """
        if self._process.returncode is not None:
            return Usage(self._cpu_seconds, 0, self._peak_bytes, 0)
        living_orphans()  # those that have ended are waited for
        # the process that keeps a job on its node does without its memory until a program runs
        import psutil

        measurements = [(0.0, 0)]
        with suppress(psutil.Error, OSError):
            main_process = psutil.Process(self.pid)
            for process in (main_process, *main_process.children(recursive=True)):
                with suppress(psutil.Error, OSError):
                    times = process.cpu_times()
                    waited_for = times.children_user + times.children_system
                    measurements.append(
                        (times.user + times.system + waited_for, process.memory_info().rss)
                    )
        memory = sum(size for _, size in measurements)
        self._cpu_seconds = max(self._cpu_seconds, sum(spent for spent, _ in measurements))
        self._peak_bytes = max(self._peak_bytes, memory)
        return Usage(self._cpu_seconds, memory, self._peak_bytes, len(measurements) - 1)

    def close(self) -> None:
        """Kill what is left of it."""
        if self._process.returncode is None:
            self._reap()
        self._pipe.close()
        if self._gate is not None:
            self._gate.close()


LAST_OUTPUT_SECONDS = 1.0


def read_rest(read: Callable[[], object]) -> None:
    """Read what an ended process left in its pipe, until `read` finds nothing.

    It takes a second at most: a child that the process left may hold the pipe open without end.
    """
    until(lambda: not read(), LAST_OUTPUT_SECONDS, 0.0)


def _before(gate: GateKeeper | None, cage: Cage | None) -> Callable[[], None]:
    put_up = None if gate is None else gate.before_exec()

    def before_exec() -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)  # exec hands down what is ignored
        if put_up is not None:
            put_up()
        if cage is not None:
            cage.enter()

    return before_exec


PATIENCE_SECONDS = 3.0
_PAUSE_SECONDS = 0.02


def marked(mark: str, proc: Path = Path("/proc")) -> list[int]:
    """Return pids of this account's processes with the mark, without zombies and this process."""
    variable = f"{MARK_VARIABLE}={mark}".encode()
    own_pid = os.getpid()
    pids = []
    for entry in proc.iterdir():
        # A zombie's environment is empty; another account's cannot be read.
        with suppress(OSError):
            if entry.name.isdigit() and variable in (entry / "environ").read_bytes().split(b"\0"):
                pids.append(int(entry.name))
    return [pid for pid in pids if pid != own_pid]


def end_marked(mark: str, patience_seconds: float = PATIENCE_SECONDS) -> int:
    """Kill every process with the mark and every orphan until none is left; return how many."""
    killed = set[int]()

    def none_is_left() -> bool:
        pids = {*marked(mark), *living_orphans()}
        killed.update(pids)
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    until(none_is_left, patience_seconds, _PAUSE_SECONDS)
    return len(killed)
