"""One process of a program: started in a session of its own, heard through one pipe, measured, and ended whole."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import Signals

from cluster.errors import ClusterError
from cluster.programs.gatekeeper import GateKeeper
from cluster.server.accounts import PR_SET_PDEATHSIG

READ_BYTES = 1 << 16


@dataclass(frozen=True)
class Usage:
    """What a process and its children use: CPU seconds so far, resident bytes now and at most, their number."""

    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    peak_bytes: int = 0
    processes: int = 0


class ProgramProcess:
    """A running program. Make it in the main thread: the kernel kills it when that thread ends."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], folder: Path, guarded_port: int | None = None
    ) -> None:
        """Start it in `folder`, without standard input. Raises ClusterError.

        Only this account and root reach the `guarded_port` of it and of its children.
        """
        self._gate = None if guarded_port is None else GateKeeper(guarded_port)
        try:
            self._process = subprocess.Popen(
                words, env=dict(environment), cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=_before(self._gate), bufsize=0,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as problem:
            why = getattr(problem, "strerror", None) or problem
            if self._gate is not None:
                self._gate.close()
            raise ClusterError(f"{words[0]}: the program cannot be started: {why}") from None
        if self._gate is not None:
            self._gate.begin()
        assert self._process.stdout is not None
        self._pipe = self._process.stdout
        os.set_blocking(self._pipe.fileno(), False)
        self._cpu_seconds, self._peak_bytes = 0.0, 0

    @property
    def pid(self) -> int:
        """Of the process itself, which leads its session."""
        return self._process.pid

    def fileno(self) -> int:
        """Of the pipe with its output, for a selector."""
        return self._pipe.fileno()

    def read(self) -> bytes | None:
        """What it printed since; None where nothing waits, no bytes once every writer has closed the pipe."""
        try:
            return os.read(self._pipe.fileno(), READ_BYTES)
        except BlockingIOError:
            return None

    def poll(self) -> int | None:
        """Its return code, negative for a signal; None while it runs. What is left of its group ends with it."""
        if self._process.returncode is None:
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return None
            self._reap()
        return self._process.returncode

    def _reap(self) -> None:
        self.ask(Signals.SIGKILL)  # before: while it is not reaped, its number names no other group
        _, status, used = os.wait4(self.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self._cpu_seconds = used.ru_utime + used.ru_stime
        self._peak_bytes = max(self._peak_bytes, used.ru_maxrss * 1024)

    def ask(self, number: Signals) -> None:
        """Send the signal to its whole group, as a terminal does."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def use(self) -> Usage:
        """What it and its children use now, and of memory the most so far; of a process that has ended the totals."""
        if self._process.returncode is not None:
            return Usage(self._cpu_seconds, 0, self._peak_bytes, 0)
        import psutil  # the process that keeps a job on its node does without its memory until a program runs

        found = [(0.0, 0)]
        with suppress(psutil.Error, OSError):
            own = psutil.Process(self.pid)
            for one in (own, *own.children(recursive=True)):
                with suppress(psutil.Error, OSError):
                    times = one.cpu_times()
                    waited_for = times.children_user + times.children_system
                    found.append((times.user + times.system + waited_for, one.memory_info().rss))
        memory = sum(size for _, size in found)
        self._cpu_seconds = max(self._cpu_seconds, sum(spent for spent, _ in found))
        self._peak_bytes = max(self._peak_bytes, memory)
        return Usage(self._cpu_seconds, memory, self._peak_bytes, len(found) - 1)

    def close(self) -> None:
        """Kill what is left of it."""
        if self._process.returncode is None:
            self._reap()
        self._pipe.close()
        if self._gate is not None:
            self._gate.close()


def _before(gate: GateKeeper | None) -> Callable[[], None]:
    # Looked up before the fork: between fork and exec nothing may be imported or loaded.
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()
    put_up = gate.before_exec() if gate is not None else lambda: None

    def before_exec() -> None:
        if prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0 or os.getppid() != parent:
            os._exit(127)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)  # exec hands down what is ignored
        put_up()

    return before_exec
