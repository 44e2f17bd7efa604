"""A job from its preparation to its result file, whatever happens in between."""

import logging
import os
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from cluster.atomic_write import atomic_write
from cluster.checkpoints import WriterLock
from cluster.errors import ClusterError
from cluster.jobs.cancel import Cancel, Cancelled
from cluster.jobs.run_environment import environment
from cluster.jobs.run_folder import RunFolder, unfinished
from cluster.jobs.run_log import RunLog
from cluster.pages.leave import reported
from cluster.status.view import JobState

if TYPE_CHECKING:
    from cluster.jobs.coordinator_metrics import CoordinatorMetrics
    from cluster.jobs.observer import Observers

log = logging.getLogger(__name__)

RUN_FILE = "PSCLUSTER_RUN_FILE"
"""Environment variable: a file to write the run's folder into."""


class Job(Protocol):
    """What every job is, seen from outside."""

    name: str
    observers: "Observers"
    metrics: "CoordinatorMetrics"

    def prepare(self) -> None:
        """All that can be refused before anything is started. Raises ClusterError, or Cancelled."""

    def run(self, folder: RunFolder) -> None:
        """The work itself. Raises ClusterError; ends early, normally or by Cancelled, when cancelled."""

    def complete(self) -> bool:
        """Whether all was done that the job is for: a Ctrl-C that comes too late for that cancels nothing."""

    def result(self) -> dict[str, Any]:
        """What goes into `result.json` below `status`: always every key, null where nothing is known."""


class Watch:
    """Whoever watches a job's life; this one does not. A context manager around all of it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """The job has ended, in whatever way."""

    def begun(self, job: Job, folder: Path, resumed: bool) -> None:
        """It was prepared, and has its folder."""

    def ended(self, status: JobState, reason: str | None) -> None:
        """It has come to this."""


class Crashed(ClusterError):
    """A job met something nobody thought of; the traceback lies in the run's folder."""


def conduct(
    job: Job, runs: Path, cancel: Cancel, resumed: Path | None = None, watch: Watch | None = None
) -> tuple[Path, dict[str, Any]]:
    """Prepare and run the job; where its result lies, and the result, whose `status` is done or cancelled.

    With `resumed`, the folder of a run that was broken off, it goes on there. `watch` sees all of it, the preparation
    too, which has no folder yet.

    Raises ClusterError: for a run that another process is at, and from the preparation, for bad input, without a trace
    in `runs`; after it with `status` failed and the `reason` in the result file.
    """
    watch = watch or Watch()
    with ExitStack() as held:
        # Before anything is read or written: the run may be alive, and its files belong to the process that has it.
        if resumed is not None:
            held.callback(WriterLock(resumed).release)
            unfinished(resumed)  # its last holder may have finished it since it was chosen
        held.enter_context(watch)
        return _conduct(job, runs, cancel, resumed, watch, held)


def _conduct(
    job: Job, runs: Path, cancel: Cancel, resumed: Path | None, watch: Watch, held: ExitStack
) -> tuple[Path, dict[str, Any]]:  # fmt: skip
    crash: Exception | None = None
    try:
        cancel.check()
        job.prepare()
    except Cancelled:
        pass
    except ClusterError:
        raise
    except Exception as problem:
        crash = problem
    folder = RunFolder(runs, job.name, resumed)
    if resumed is None:
        held.callback(WriterLock(folder.path).release)
    job.observers.opened(folder.path.name, job.name)
    with (
        RunLog(folder.path / "coordinator.log") as run_log,
        reported(folder.path, environment),
        job.metrics.until_read(lambda: cancel.asked),
    ):
        _tell_where(folder.path)  # not before it can be gone on with: that takes its log
        watch.begun(job, folder.path, resumed is not None)
        try:
            if crash is not None:
                raise crash
            if not cancel.asked:
                job.run(folder)
        except Cancelled:
            pass
        except ClusterError as problem:
            _record_failure(job, folder, problem)
            watch.ended("failed", str(problem))
            raise
        except Exception as problem:
            run_log.keep_traceback(problem)
            crashed = Crashed(
                f"{job.name} failed on something unforeseen, {type(problem).__name__}: {_first_line(problem)}. The "
                f"traceback is in {run_log.path}: please report it"
            )
            _record_failure(job, folder, crashed)
            watch.ended("failed", str(crashed))
            raise crashed from None
        status: JobState = "cancelled" if cancel.asked and not job.complete() else "done"
        result = _complete(job, status)
        log.info("%s: %s", job.name, status)
        path = folder.write_result(result)
        job.observers.ended(status, None)
        watch.ended(status, None)
        return path, result


def _tell_where(run: Path) -> None:
    """To whoever would bring us back, should we be killed: the run to go on with."""
    told = os.environ.get(RUN_FILE)
    if told:
        atomic_write(Path(told), str(run.resolve()).encode() + b"\n")


def _record_failure(job: Job, folder: RunFolder, problem: ClusterError) -> None:
    """In the result; should the disk not take that either, the problem itself is still what the user is told."""
    try:
        folder.event(status="failed", reason=str(problem))
        folder.write_result(_complete(job, "failed", str(problem)))
        log.info("%s: failed: %s", job.name, problem)
    except ClusterError as second:
        log.warning("%s", second)
    job.observers.ended("failed", str(problem))


def _complete(job: Job, status: str, reason: str | None = None) -> dict[str, Any]:
    return {"schema": 1, "job": job.name, "status": status, "reason": reason, **job.result()}


def _first_line(problem: Exception) -> str:
    return (str(problem).splitlines() or [""])[0]
