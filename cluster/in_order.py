"""The jobs of one coordinator process, one after the other.

Each but the last runs in a fork of this process: TensorFlow is loaded once, and the memory, the
devices and the ports of a job go when it ends. The last one runs in the process itself. Standard
input is a socket to `fab`: a byte comes when the roles are ready, and one goes back for each job
that is done before the last.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from cluster.apps.app import remove_copies
from cluster.jobs.cancel import STOP_SIGNALS, Cancel
from core.ground.children import dies_with_parent
from core.ground.errors import ExitCode, UsageError
from core.inventory import Inventory
from core.logs import say

JOBS = {
    "train": "TrainRun",
    "evaluate": "EvaluateRun",
    "pi": "PiRun",
    "cv": "CrossValidationRun",
}
"""The class of each job of `cluster/jobs/`, by the name of its module."""
READS_RECORDINGS = frozenset({"train", "cv", "evaluate"})
_CHANNEL = 0

RunJob = Callable[[str, Cancel], int]
"""Runs the job of a name; returns its exit code."""


def load_jobs(*jobs: str) -> Any:
    """Import TensorFlow and the jobs; return the class of the last one."""
    from core.engine.environment import loading_quietly

    with loading_quietly():
        import core.engine.graph_options  # noqa: F401  (loads TensorFlow)

        for job in jobs:
            job_of = getattr(import_module(f"cluster.jobs.{job}"), JOBS[job])
    return job_of


def refuse_another_order(job: str, then: Sequence[str], of: int) -> None:
    """Raise UsageError where --of and --then do not fit each other or the job."""
    if (of or then) and (job not in JOBS or of <= len(then)):
        raise UsageError(
            f"--of {of}: expected {' or '.join(JOBS)}, and a number of jobs that counts this one"
            " and each --then"
        )


def run_in_order(
    jobs: Sequence[str], of: int, inventory: Inventory, run: RunJob, cancel: Cancel
) -> int:
    """Load the jobs, wait for `fab`, and run them until one does not end with 0.

    `of` is the number of jobs of the run, of which these are the last ones. A fork prepares the
    recordings meanwhile. Returns the exit code of the latest job, and 130 if `fab` went away. A
    signal that kills a job kills this process too.
    """
    preparing = 0
    if not READS_RECORDINGS.isdisjoint(jobs):
        preparing = _prepare_recordings(inventory)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    load_jobs(*jobs)
    if not os.read(_CHANNEL, 1):
        return ExitCode.CANCELLED
    for number, job in enumerate(jobs, of - len(jobs) + 1):
        say(f"job {number} of {of}: {job}")
        if preparing and job in READS_RECORDINGS:
            _await_end(preparing, cancel)
            preparing = 0
        if number == of:
            break
        code = _run_in_fork(partial(run, job), cancel)
        if code:
            return code
        os.write(_CHANNEL, b"\n")  # first: a job whose run is forgotten would run again
        _forget_run()
    return run(jobs[-1], cancel)


def _prepare_recordings(inventory: Inventory) -> int:
    """Prepare the recordings of `jobs.train` in a fork; return its process id.

    It writes nothing to the terminal: the job opens the prepared folder, and reports the recordings
    or what is wrong with them.
    """

    def prepare(cancel: Cancel) -> int:
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(silence, descriptor)
        from cluster.jobs.progress import Display
        from cluster.jobs.sources import load_dataset

        load_dataset(inventory, Display(quiet=True), cancel, lambda event: None)
        return ExitCode.DONE

    return _fork(prepare)


def _run_in_fork(run: Callable[[Cancel], int], cancel: Cancel) -> int:
    code = _await_end(_fork(run), cancel)
    if code < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _fork(run: Callable[[Cancel], int]) -> int:
    """Run a function in a child process, which dies with this one; return the child's id.

    Its exit code is what the function returns, and 1 after a traceback. Requests to stop stay
    blocked in this process: it has to know the child first. Main thread only.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    bind = dies_with_parent()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    child = os.fork()
    if child:
        return child
    code: int = ExitCode.FAILED
    try:
        bind()
        with Cancel() as cancel:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            code = run(cancel)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
            remove_copies()
        os._exit(code)


def _forget_run() -> None:
    """Remove the name of the run that is done: a later job is not to resume it."""
    from cluster.jobs.lifecycle import RUN_FILE

    if path := os.environ.get(RUN_FILE):
        Path(path).unlink(missing_ok=True)


def _await_end(child: int, cancel: Cancel) -> int:
    """Wait for a child, which gets every request to stop; return its exit code or -signal."""
    with cancel.passed_on_to(child):
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
