"""Child processes that do not outlive this one.

    with Child(words, stdout=subprocess.PIPE) as child:
        output, _ = child.communicate()

The kernel kills the child as soon as this process is gone, also when this one is killed. The child
leads a process group of its own, so that a terminal's Ctrl-C reaches this process alone, which
decides what to do about it. It reads nothing: a background group that reads the terminal is
stopped.
"""

import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from types import TracebackType
from typing import IO

PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True)
class EndRequest:
    """How a child is asked to end, and how long it has for that."""

    signal: Signals
    deadline_seconds: float


class Child(subprocess.Popen[bytes]):
    """A process as this module describes it; leaving the block of its `with` calls `end`.

    Start it in the main thread. The kernel's signal comes when the *thread* that started the child
    ends, so a child of another thread does without it.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
        ending: "EndRequest | None" = None,
        new_session: bool = False,
        before_exec: Callable[[], None] | None = None,
    ) -> None:
        """Start it. `environment` and `folder` are this process's own where they are None.

        `end` asks as `ending` says, and kills at once without one. A `new_session` has no terminal.
        The child calls `before_exec` last before it becomes the program: that function may import
        and load nothing. Raises OSError, subprocess.SubprocessError.
        """
        self._ending = ending
        self._is_interrupted = False
        if threading.current_thread() is threading.main_thread():
            prepare: Callable[[], None] | None = dies_with_parent(before_exec)
        else:
            prepare = before_exec
        super().__init__(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=None if environment is None else dict(environment),
            cwd=folder,
            start_new_session=new_session,
            process_group=None if new_session else 0,
            preexec_fn=prepare,
        )

    def interrupt(self) -> None:
        """Send SIGINT the first time, SIGKILL every other time. A signal handler may call it."""
        if self._is_interrupted:
            self.kill()
        else:
            self._is_interrupted = True
            self.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Ask it to end if it still runs, kill it at the deadline; return its exit code.

        A KeyboardInterrupt meanwhile kills it too, and is raised again.
        """
        if self.poll() is None:
            if self._ending is None:
                self.kill()
                return self.wait()
            self.send_signal(self._ending.signal)
            try:
                self.wait(self._ending.deadline_seconds)
            except subprocess.TimeoutExpired:
                self.kill()
            except BaseException:
                self.kill()
                self.wait()
                raise
        return self.wait()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.end()
        finally:
            super().__exit__(kind, problem, trace)


@dataclass(frozen=True)
class FinishedProcess:
    """What a short program has written, and its exit code."""

    code: int
    output: str
    errors: str

    @property
    def last_error(self) -> str:
        """The last line of standard error, or the exit code."""
        *_, last = f"exit code {self.code}", *self.errors.strip().splitlines()
        return last


def finished(
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str] | None = None,
    folder: str | Path | None = None,
    seconds: float | None = None,
) -> FinishedProcess:
    """Run a short program, which reads nothing, to its end.

    Raises OSError where it cannot be started, subprocess.TimeoutExpired after `seconds`.
    """
    process = subprocess.run(
        command,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
    )
    return FinishedProcess(process.returncode, process.stdout, process.stderr)


def dies_with_parent(and_then: Callable[[], None] | None = None) -> Callable[[], None]:
    """Return a `preexec_fn` after which the child gets SIGKILL as soon as this process is gone.

    The signal comes when the *thread* that started the child ends. `and_then` runs last.
    """
    # Looked up before the fork: between fork and exec nothing may be imported or loaded.
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def before_exec() -> None:
        if prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
            os._exit(127)
        if os.getppid() != parent:  # it died before the call of prctl
            os._exit(127)
        # A shell's `command &` ignores SIGINT, and exec would hand that down: the child must be
        # interruptible.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if and_then is not None:
            and_then()

    return before_exec
