"""A job as a foreground child: interrupted once, killed when it does not end, dead when we are dead."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from cluster.logs.terminal import say
from deploy.common.parent_death import die_with_parent
from deploy.jobs.job_restart import JobEnding

INTERRUPT_DEADLINE_SECONDS = 60.0
"""For writing the result so far: a coordinator stuck in a wait hears no signal but SIGKILL."""

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside, whatever interrupts a job raises KeyboardInterrupt where none runs, also Ctrl-C under a shell's `&`."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _listened_to()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_in_foreground(
    command: Sequence[str],
    environment: Mapping[str, str],
    deadline_seconds: float = INTERRUPT_DEADLINE_SECONDS,
) -> JobEnding:
    """Run the job to its end. Main thread only.

    The first Ctrl-C, SIGTERM or closed terminal reaches the job as one SIGINT, whoever it was sent to: the job is a
    process group of its own, which a terminal's Ctrl-C passes by. The second one, or the deadline, kills it.
    """
    job: subprocess.Popen[bytes] | None = None
    received: list[int] = []
    told = False

    def interrupt(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if told and job is not None:
            job.kill()
        deliver()

    def deliver() -> None:
        nonlocal told
        if job is None or told:
            return
        told = True
        job.send_signal(signal.SIGINT)
        signal.setitimer(signal.ITIMER_REAL, deadline_seconds)
        tell(f"interrupted: the job has {deadline_seconds:.0f} s for its result so far; a second interrupt kills it")

    def overdue(_number: int, _frame: FrameType | None) -> None:
        tell(f"the job did not end within {deadline_seconds:.0f} s: killed")
        if job is not None:
            job.kill()

    begun = time.monotonic()
    before = {number: signal.signal(number, interrupt) for number in _listened_to()}
    before[signal.SIGALRM] = signal.signal(signal.SIGALRM, overdue)
    try:
        job = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,  # a background process group that reads the terminal is stopped
            env=dict(environment),
            process_group=0,
            preexec_fn=die_with_parent(),
        )
        if received:  # before there was a job to tell
            deliver()
        return_code = job.wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
    # Only now: until the handlers are gone, a signal may still come.
    return JobEnding(return_code, time.monotonic() - begun, interrupted=bool(received))


def tell(message: str) -> None:
    """A line on stderr in between what the job writes there."""
    # On a terminal the cursor stands behind the job's live bar, or behind the ^C that the terminal shows.
    fresh_line = "\n" if sys.stderr.isatty() else ""
    say(f"{fresh_line}{message}", error=True)


def _listened_to() -> list[signal.Signals]:
    # nohup ignores SIGHUP, and means it.
    return [n for n in _PASSED_ON if n == signal.SIGINT or signal.getsignal(n) is not signal.SIG_IGN]
