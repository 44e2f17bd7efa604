"""One process of a program: in a session of its own, read, measured, and ended whole."""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import Signals

from cluster.programs import orphans
from cluster.programs.gatekeeper import GateKeeper
from core.cage.landlock import Cage
from core.ground.children import Child
from core.ground.errors import ClusterError

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
        orphans.before_program()
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
        orphans.began(self.pid)
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

    def read(self) -> bytes | None:
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
        orphans.ended(self.pid)
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
        orphans.living()  # those that have ended are waited for
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
