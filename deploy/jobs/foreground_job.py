"""A job as a foreground child: restarted by its policy, killed late, dead when we are."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from signal import Signals
from types import FrameType

from core.cage.landlock import Cage
from core.ground.children import Child
from core.ground.errors import ClusterError, ExitCode
from core.ground.files import read_json
from core.ground.waiting import Backoff, pause
from core.logs import say
from deploy.common.command_line import command, named, quoted
from deploy.common.interrupts import handled, interruptible

_ASKED_TO_END = frozenset({-Signals.SIGINT, -Signals.SIGTERM})
"""A running coordinator catches these and ends with 130; it dies of them only before it has
handlers."""


@dataclass(frozen=True)
class JobEnding:
    """The end of a coordinator: `return_code` as `subprocess` gives it, negative for a signal.

    `interrupted`: a person asked the job to end; a signal after that is ours. `done`: how many jobs
    the process had done before the one that ended.
    """

    return_code: int
    seconds: float
    interrupted: bool = False
    done: int = 0

    @property
    def exit_code(self) -> int:
        """The job's own exit code, or 130 or 1 when a signal ended it."""
        if self.return_code >= 0:
            return self.return_code
        cancelled = self.interrupted or self.return_code in _ASKED_TO_END
        if cancelled:
            return ExitCode.CANCELLED
        return ExitCode.FAILED

    def describe(self) -> str:
        """`ended with signal 9 (SIGKILL) after 12.3 s`, and where to look for the cause."""
        description = f"ended with {named(self.return_code)} after {self.seconds:.1f} s"
        if self.return_code == -Signals.SIGKILL:
            description += (
                " (if it was not sent on purpose, look for out of memory in the kernel's log:"
                " dmesg)"
            )
        return description


@dataclass(frozen=True)
class JobDecision:
    """Start the job again after `delay_seconds`, or not; `reason` carries the numbers behind it.

    `reason` is empty for a normal end, which needs no explanation.
    """

    restart: bool
    delay_seconds: float
    reason: str


_LET_IT_END = JobDecision(restart=False, delay_seconds=0.0, reason="")


@dataclass(frozen=True)
class JobRestartPolicy:
    """Doubling delays between restarts, and at most `limit` of them within a sliding window.

    A long training survives any number of losses that are far apart; a job that loses its server
    again and again within minutes makes no progress.
    """

    backoff: Backoff = field(default_factory=Backoff)
    limit: int = 5
    window_seconds: float = 600.0

    def decide(self, ending: JobEnding, restarts: Sequence[float], now: float) -> JobDecision:
        """The decision for one ending; `restarts` and `now` are seconds of one monotonic clock."""
        if not self._curable(ending, restarted=bool(restarts)):
            died = ending.return_code < 0 and ending.exit_code == ExitCode.FAILED
            if died:
                return JobDecision(False, 0.0, f"{ending.describe()}; not restarted")
            return _LET_IT_END
        recent = sum(now - at < self.window_seconds for at in restarts)
        if recent >= self.limit:
            spent = (
                f"{recent} restarts in the last {self.window_seconds:.0f} s, {self.limit} are"
                " allowed"
            )
            return JobDecision(False, 0.0, f"{ending.describe()}; not restarted: {spent}")
        delay = self.backoff.seconds(recent + 1)
        count = f"restart {recent + 1} of {self.limit} within {self.window_seconds:.0f} s"
        return JobDecision(True, delay, f"{ending.describe()}; {count}, in {delay:.1f} s")

    @staticmethod
    def _curable(ending: JobEnding, *, restarted: bool) -> bool:
        if ending.interrupted or ending.return_code in _ASKED_TO_END:
            return False
        if ending.return_code == -Signals.SIGILL:  # the same instruction comes again
            return False
        if ending.return_code == ExitCode.PORT_TAKEN:
            # It had the port before: while it was gone an outgoing connection may have borrowed it.
            return restarted
        return ending.return_code < 0 or ending.return_code in (
            ExitCode.SERVER_LOST,
            ExitCode.PROGRAM_KILLED,
        )


INTERRUPT_DEADLINE_SECONDS = 60.0
"""Time to write the result so far: a coordinator that hangs reacts to SIGKILL alone."""

RUN_FILE_VARIABLE = "PSCLUSTER_RUN_FILE"
"""Names the file into which a coordinator writes the absolute path of its run folder."""


_RESUMED_BY = {"train": "job train", "cv": "job cv", "sweep": "sweep {run}/sweep.yaml"}
"""Command that resumes a run, by its job."""


@dataclass(frozen=True)
class JobProcess:
    """What to start: a job's command line and environment, its name and its inventory.

    `run_file` is where the coordinator names its run folder, None without one. A `resumable` job is
    started again in that folder, another one from the start. `typed_folder` turns the folder
    into what a person types for it. The process runs the jobs `following` it too, the last ones of
    `of`.
    """

    name: str
    inventory: Path
    command_line: tuple[str, ...]
    environment: Mapping[str, str]
    run_file: Path | None = None
    resumable: bool = True
    typed_folder: Callable[[str], str] = str
    cage: Cage | None = None
    """Cage that the process enters before it runs the command line; a person's own job has none."""
    following: tuple["JobProcess", ...] = ()
    of: int = 0

    @property
    def run_to_resume(self) -> str:
        """Return the folder that the coordinator named; empty before, or where the job restarts."""
        if self.resumable:
            return self._run
        return ""

    @property
    def _run(self) -> str:
        try:
            if self.run_file is None:
                return ""
            return self.run_file.read_text().strip()
        except FileNotFoundError:
            return ""

    def after_finished_run(self) -> "JobProcess | None":
        """Return the process of what remains; None if the last job's run is done.

        Nothing reported the end of a run that the coordinator named: of an earlier job, or of this
        one. The name of a run that is done is removed.
        """
        if self.run_file is None or not self._run:
            return self
        with suppress(OSError, ValueError, LookupError, TypeError):
            result = read_json(Path(self._run, "result.json"))
            is_of_this_job = result["job"] == self.name
            if result["status"] == "done":
                self.run_file.unlink()
                if is_of_this_job and not self.following:
                    return None
                return self.after(int(is_of_this_job))
        return self

    def refuse_empty_success(self, ending: JobEnding) -> None:
        """Raise ClusterError for a coordinator that ended with 0 and left no result."""
        if ending.return_code != 0 or self.run_file is None:
            return
        run = self._run
        if not run or not Path(run, "result.json").is_file():
            raise ClusterError(
                f"{self.name}: the process ended with 0 before it had a result: does the app or a"
                " library that it uses end the process (os._exit)?"
            )

    def after(self, done: int) -> "JobProcess":
        """Return the process of the jobs that remain when so many are done."""
        if not done:
            return self
        remaining = self.following[done - 1 :]
        return replace(remaining[0], following=remaining[1:], of=self.of)

    def run_once(self, waiting: "WaitingJob | None" = None) -> JobEnding:
        """One coordinator from its start to its end, or from now on one that waits for this."""
        if not self.of:
            return run_in_foreground(self.start)
        with waiting or WaitingJob(self) as coordinator:
            ending = run_in_foreground(coordinator.begin)
            return replace(ending, done=coordinator.done())

    def start(self, channel: int | None = None) -> Child:
        """Start a coordinator; `channel` is a descriptor that becomes its standard input."""

        def enter() -> None:
            if channel is not None:
                os.dup2(channel, 0)
            if self.cage is not None:
                self.cage.enter()

        run = self.run_to_resume
        if self.run_file is None:
            named = {}
        else:
            named = {RUN_FILE_VARIABLE: str(self.run_file)}
        command_line = [*self.command_line]
        if run:  # after one that the person gave, this is the one that counts
            command_line += ["--resume", run]
        if self.of:
            command_line += ["--of", str(self.of)]
        for job in self.following:
            command_line += ["--then", job.name]
        environment = {**self.environment, **named}
        return Child(command_line, environment=environment, before_exec=enter)

    def announce_resume(self) -> None:
        """Show the command that resumes the run, if there is one."""
        run = self.run_to_resume
        if not run or self.name not in _RESUMED_BY:
            return
        folder = quoted(self.typed_folder(run))
        resume_command = command(
            f"{_RESUMED_BY[self.name].format(run=folder)} --resume --run {folder}", self.inventory
        )
        announce(f"`{resume_command}` resumes it")


class WaitingJob(AbstractContextManager["WaitingJob"]):
    """A coordinator that loads what its jobs need, and waits for `begin`.

    Main thread only; leaving the block kills it.
    """

    def __init__(self, job: JobProcess) -> None:
        """Start it."""
        self.job = job
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._child = job.start(theirs.fileno())

    def __exit__(self, *_: object) -> None:
        self._child.end()
        self._channel.close()

    def begin(self) -> Child:
        """Have it run its jobs."""
        with suppress(OSError):  # it has ended already
            self._channel.send(b"\n")
        return self._child

    def done(self) -> int:
        """Return how many jobs it had done before the one in which it ended."""
        with suppress(OSError):
            return len(self._channel.recv(len(self.job.following), socket.MSG_DONTWAIT))
        return 0


def run_to_its_end(
    job: JobProcess,
    restart_roles: Callable[[], None],
    policy: JobRestartPolicy,
    waiting: WaitingJob | None = None,
) -> int:
    """Run the job until it is done, interrupted, or not to be restarted; its exit code.

    `waiting` is its first coordinator if that was started ahead. `restart_roles` runs before each
    restart: it clears what the dead coordinator left on the servers. The run file of an earlier job
    is removed first. Raises what `restart_roles` raises. Main thread only.
    """
    restarts: list[float] = []
    if job.run_file is not None:
        job.run_file.unlink(missing_ok=True)
    try:
        with interruptible():
            while True:
                ending = job.run_once(waiting)
                waiting = None
                if ending.done:
                    job = job.after(ending.done)
                    restarts.clear()
                decision = policy.decide(ending, restarts, time.monotonic())
                if job.of and ending.return_code:
                    remaining = job.after_finished_run()
                    if remaining is None and decision.restart:
                        return 0
                    job = remaining or job
                if decision.reason:
                    announce(f"{job.name}: {decision.reason}")
                job.refuse_empty_success(ending)
                if not decision.restart:
                    if decision.reason:
                        job.announce_resume()
                    return ending.exit_code
                pause(decision.delay_seconds)
                restart_roles()
                restarts.append(time.monotonic())
                run = job.run_to_resume
                announce(
                    f"{job.name}: started again"
                    f"{f', resuming {job.typed_folder(run)}' if run else ''}"
                )
    except KeyboardInterrupt:
        announce(f"{job.name}: interrupted before it was started again")
        job.announce_resume()
        return ExitCode.CANCELLED
    except ClusterError:
        job.announce_resume()
        raise


def run_in_foreground(
    start: Callable[[], Child], deadline_seconds: float = INTERRUPT_DEADLINE_SECONDS
) -> JobEnding:
    """Run the job that `start` starts to its end. Main thread only.

    The first Ctrl-C, SIGTERM or closed terminal reaches the job as one SIGINT: the job is a process
    group of its own, which the terminal's own signal does not reach. The second one, or the
    deadline, kills it.
    """
    job: Child | None = None
    received: list[int] = []
    delivered = False

    def interrupt(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        deliver()

    def deliver() -> None:
        nonlocal delivered
        if job is None:
            return
        job.interrupt()
        if delivered:
            return
        delivered = True
        signal.setitimer(signal.ITIMER_REAL, deadline_seconds)
        message = (
            f"the job has {deadline_seconds:.0f} s for its result so far; a second interrupt"
            " kills it"
        )
        announce(f"interrupted: {message}")

    def overdue(_number: int, _frame: FrameType | None) -> None:
        announce(f"the job did not end within {deadline_seconds:.0f} s: killed")
        if job is not None:
            job.kill()

    begun = time.monotonic()
    alarm = signal.signal(signal.SIGALRM, overdue)
    try:
        with (
            handled(interrupt),
            start() as job,
        ):
            # A signal that came before the job did. One that has reached it must not kill it too.
            if received and not delivered:
                deliver()
            return_code = job.wait()
    finally:
        # Only now can no late interrupt start the timer again.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, alarm)
    # Last: a signal may arrive until the handlers are restored.
    return JobEnding(return_code, time.monotonic() - begun, interrupted=bool(received))


def announce(message: str) -> None:
    """Print a line on stderr between those of the job."""
    # On a terminal the cursor stands behind the job's live bar, or behind the ^C that the terminal
    # shows.
    if sys.stderr.isatty():
        fresh_line = "\n"
    else:
        fresh_line = ""
    say(f"{fresh_line}{message}", error=True)
