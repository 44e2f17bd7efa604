"""A job from its preparation to its result file, whatever happens in between."""

import logging
import os
import platform
import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import psutil

from cluster.apps.copy import AppOfRun
from cluster.jobs.cancel import Cancel, JobCancelled
from cluster.jobs.job_metrics import CoordinatorMetrics, JobMetrics
from cluster.jobs.progress import Display, Terminal
from cluster.jobs.run_folder import RunFolder, RunLog, unfinished
from cluster.jobs.run_status import RunStatus, began
from cluster.pages import with_report
from core import __version__
from core.checkpoints import Superseded, WriterLock
from core.engine.chaos import ChaosPlan
from core.ground.errors import ClusterError, reason_of
from core.ground.files import atomic_write, of_disk, write_refusal
from core.inventory import Inventory
from core.metrics.process import processor
from core.metrics.standard import tensorflow_version
from core.status.events import Ended, Event, EventStream, Opened
from core.status.parts import CLASSIFICATION

log = logging.getLogger(__name__)

RUN_FILE = "PSCLUSTER_RUN_FILE"
"""Environment variable: a file to write the run's folder into."""


@dataclass(frozen=True)
class JobContext:
    """Everything that is settled before a job is made."""

    inventory: Inventory
    display: Display
    cancel: Cancel
    resumed: Path | None = None
    """The folder of the run that the job continues."""
    app: AppOfRun | None = None
    """The app, of which the run keeps a copy; None for a built-in model."""
    chaos: ChaosPlan | None = None
    """Faults to inject."""
    muted: bool = False
    """Whether the job opens no port: a node may have several runs of a sweep at once."""


class Job(ABC):
    """What every job is, seen from outside."""

    name: str
    app: AppOfRun | None = None
    unit = "windows"
    """Unit of its work: `windows` of recordings, `examples` of other data. Known once it
    is prepared."""
    task_type = CLASSIFICATION
    """Task that it learns."""
    result_path: Path | None = None
    """Path of the result of a job that leaves one for a person even when it fails."""

    def __init__(self, context: JobContext) -> None:
        inventory = context.inventory
        display = context.display
        self.inventory = inventory
        self.display = display
        self.cancel = context.cancel
        self.resumed = context.resumed
        self.app = context.app
        self.chaos = context.chaos
        self.begin = time.monotonic()
        self.metrics = CoordinatorMetrics(
            inventory.shared_folder, display.busy, muted=context.muted
        )
        self.status = RunStatus(began(inventory, self.name))
        JobMetrics(self.metrics.registry, self.status.now, lambda: self.metrics.membership)
        self.stream = EventStream(self.status.consume, Terminal(display, self.status.now).consume)

    def prepare(self) -> None:  # noqa: B027  some jobs have nothing to refuse
        """Refuse all that can be before anything is started. Raises ClusterError, or Cancelled."""

    @abstractmethod
    def run(self, folder: RunFolder) -> None:
        """The work itself.

        Raises ClusterError; ends early, normally or by Cancelled, when cancelled.
        """

    @abstractmethod
    def complete(self) -> bool:
        """Return whether all was done that the job is for: a later Ctrl-C cancels nothing."""

    def result(self) -> dict[str, Any]:
        """Return what `result.json` has below `status`: every key, null where nothing is known."""
        return {
            "cluster": self.inventory.cluster,
            "workers": len(self.inventory.of_role("worker")),
            "ps": len(self.inventory.of_role("ps")),
            "elapsed_seconds": self.elapsed_seconds(),
        }

    def elapsed_seconds(self) -> float:
        """Return the time since the job began."""
        return time.monotonic() - self.begin


class Watch(AbstractContextManager["Watch"]):
    """Hooks around a job's life, and a consumer of its events; the default does nothing.

    A context manager.
    """

    def __exit__(self, *_: object) -> None:
        """The job has ended, in whatever way."""

    def begun(self, job: Job, folder: Path, resumed: bool) -> None:
        """The job is prepared and has its folder."""

    def consume(self, event: Event) -> None:
        """Take an event of the job."""


class Crashed(ClusterError):
    """A job failed on a bug; the traceback lies in the run's folder."""


def conduct(
    job: Job, runs: Path, cancel: Cancel, resumed: Path | None = None, watch: Watch | None = None
) -> tuple[Path, dict[str, Any]]:
    """Prepare and run the job; return the path of its result, and the result.

    The `status` in the result is done or cancelled. With `resumed`, the folder of a run that was
    interrupted, the job continues there. `watch` gets its events from the preparation on, which has
    no folder yet.

    Raises ClusterError: without a trace in `runs` for a run that another process writes, and for
    bad input; later with `status` failed and the `reason` in the result file.
    """
    watch = watch or Watch()
    with ExitStack() as resources:
        # Before anything is read or written: the run may be alive, and its files belong to the
        # process that has it.
        lock: WriterLock | None = None
        if resumed is not None:
            lock = WriterLock(resumed)
            resources.callback(lock.release)
            unfinished(resumed)  # its last holder may have finished it since it was chosen
        resources.enter_context(watch)
        job.stream.add(watch.consume)
        return _conduct(job, runs, cancel, resumed, watch, resources, lock)


def _conduct(
    job: Job,
    runs: Path,
    cancel: Cancel,
    resumed: Path | None,
    watch: Watch,
    resources: ExitStack,
    lock: WriterLock | None,
) -> tuple[Path, dict[str, Any]]:
    crash: Exception | None = None
    try:
        cancel.check()
        job.prepare()
    except JobCancelled:
        pass
    except ClusterError:
        raise
    except Exception as problem:
        crash = problem
    folder = RunFolder(runs, job.name, resumed)
    if lock is None:
        lock = WriterLock(folder.path)
        resources.callback(lock.release)
    with (
        RunLog(folder.path / "coordinator.log") as run_log,
        with_report(folder.path, environment),
        job.metrics.until_read(lambda: cancel.asked),
    ):
        _write_run_file(folder.path)  # only once it is resumable: `--resume` requires the log
        watch.begun(job, folder.path, resumed is not None)
        parameters = (job.result().get("model") or {}).get("parameters")
        job.stream.emit(Opened(folder.path.name, job.name, parameters, job.unit, job.task_type))
        try:
            if crash is not None:
                raise crash
            if not cancel.asked:
                job.app = job.app and job.app.kept_with(folder.path)
                job.run(folder)
        except JobCancelled:
            pass
        except Superseded:
            raise  # the result is another process's to write
        except ClusterError as problem:
            _record_failure(job, folder, problem)
            raise
        except Exception as problem:
            if isinstance(problem, OSError) and of_disk(problem):
                path = Path(problem.filename or folder.path)
                refusal = write_refusal(path, "the disk refused it", problem)
                _record_failure(job, folder, refusal)
                raise refusal from None
            run_log.keep_traceback(problem)
            crashed = Crashed(
                f"{job.name} failed on something unforeseen, {type(problem).__name__}:"
                f" {reason_of(problem)}. The traceback is in {run_log.path}: please report it"
            )
            _record_failure(job, folder, crashed)
            raise crashed from None
        if cancel.asked and not job.complete():
            status: Literal["done", "cancelled"] = "cancelled"
        else:
            status = "done"
        result = _complete(job, status)
        log.info("%s: %s", job.name, status)
        lock.refuse_if_superseded()
        path = folder.write_result(result)
        job.stream.emit(Ended(status))
        return path, result


def _write_run_file(run: Path) -> None:
    """Leave the run's folder where the process that restarts a killed coordinator looks for it."""
    named = os.environ.get(RUN_FILE)
    if named:
        atomic_write(Path(named), str(run.resolve()).encode() + b"\n")


def _record_failure(job: Job, folder: RunFolder, problem: ClusterError) -> None:
    """Record the failure in the result and the history.

    If the disk refuses that too, the user still sees the problem itself.
    """
    try:
        folder.write_result(_complete(job, "failed", str(problem)))
        log.info("%s: failed: %s", job.name, problem)
    except ClusterError as second:
        log.warning("%s", second)
    job.stream.emit(Ended("failed", str(problem)))


def _complete(job: Job, status: str, reason: str | None = None) -> dict[str, Any]:
    return {"schema": 1, "job": job.name, "status": status, "reason": reason, **job.result()}


def environment() -> dict[str, Any]:
    """Versions of this process, and its machine, for the run's `environment.json`."""
    return {
        "schema": 1,
        "pscluster": __version__,
        "tensorflow": tensorflow_version(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "system": platform.platform(),
        "processor": processor(),
        "cores": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
    }
