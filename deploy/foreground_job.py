"""A job as a foreground child: interrupted once, killed when it does not end, dead when we are dead."""

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import FrameType

from cluster.errors import ExitCode
from deploy.parent_death import die_with_parent

INTERRUPT_DEADLINE_SECONDS = 60.0
"""For writing the result so far: a coordinator stuck in a wait hears no signal but SIGKILL."""

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_in_foreground(
    command: Sequence[str],
    environment: Mapping[str, str],
    deadline_seconds: float = INTERRUPT_DEADLINE_SECONDS,
) -> int:
    """Run the job to its end; its exit code, or 130 or 1 when a signal ended it. Main thread only.

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
        _tell(f"interrupted: the job has {deadline_seconds:.0f} s for its result so far; Ctrl-C again kills it")

    def overdue(_number: int, _frame: FrameType | None) -> None:
        _tell(f"the job did not end within {deadline_seconds:.0f} s: killed")
        if job is not None:
            job.kill()

    # nohup ignores SIGHUP, and means it.
    passed_on = [number for number in _PASSED_ON if number == signal.SIGINT or not _ignored(number)]
    before = {number: signal.signal(number, interrupt) for number in passed_on}
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
        return _exit_code(job.wait(), interrupted=bool(received))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignored(number: signal.Signals) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN


def _exit_code(return_code: int, *, interrupted: bool) -> int:
    if return_code >= 0:
        return return_code
    if interrupted:
        return ExitCode.CANCELLED
    name = signal.Signals(-return_code).name
    _tell(f"the job was ended by {name}; where nobody sent it, look for out of memory in the kernel's log (dmesg)")
    return ExitCode.FAILED


def _tell(message: str) -> None:
    # On a terminal the cursor stands behind the job's live bar, or behind the ^C that the terminal shows.
    fresh_line = "\n" if sys.stderr.isatty() else ""
    print(f"{fresh_line}{message}", file=sys.stderr, flush=True)
