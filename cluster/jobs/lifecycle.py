"""A job from its preparation to its result file, whatever happens in between."""

import logging
import os
import platform
import time
from contextlib import AbstractContextManager, ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import psutil

from cluster import __version__
from cluster.apps.copy import AppOfRun
from cluster.atomic_write import atomic_write
from cluster.checkpoints import WriterLock
from cluster.engine.chaos import ChaosPlan
from cluster.errors import ClusterError, reason_of
from cluster.inventory import Inventory
from cluster.jobs.cancel import Cancel, Cancelled
from cluster.jobs.job_metrics import CoordinatorMetrics, JobMetrics
from cluster.jobs.progress import Display, Terminal
from cluster.jobs.run_folder import RunFolder, RunLog, unfinished
from cluster.metrics.processor import processor
from cluster.metrics.standard import tensorflow_version
from cluster.pages.leave import reported
from cluster.status.events import Ended, Event, Opened
from cluster.status.parts import CLASSIFICATION
from cluster.status.stream import Stream

log = logging.getLogger(__name__)

RUN_FILE = "PSCLUSTER_RUN_FILE"
"""Environment variable: a file to write the run's folder into."""


class Job:
    """What every job is, seen from outside."""

    name: str
    app: AppOfRun | None = None
    """The app, of which the run keeps a copy; None for a built-in model."""
    unit = "windows"
    """What its workers work off: `windows` of recordings, `examples` of other data. Known once it is prepared."""
    task_type = CLASSIFICATION
    """What it learns."""

    def __init__(
        self, inventory: Inventory, display: Display, cancel: Cancel, chaos: ChaosPlan | None = None,
        mode: str = "", model: str = "",
    ) -> None:  # fmt: skip
        """`chaos`: faults to inject. `mode` and `model`: of a training, for its metrics."""
        self.inventory, self.display, self.cancel, self.chaos = inventory, display, cancel, chaos
        self.begin = time.monotonic()
        self.metrics = CoordinatorMetrics(inventory.shared_folder, display.busy)
        self.job_metrics = JobMetrics(self.metrics.registry, mode, model, lambda: self.metrics.membership)
        self.stream = Stream(self.metrics.metered(self.job_metrics.consume), Terminal(display).consume)

    def prepare(self) -> None:
        """All that can be refused before anything is started. Raises ClusterError, or Cancelled."""

    def run(self, folder: RunFolder) -> None:
        """The work itself. Raises ClusterError; ends early, normally or by Cancelled, when cancelled."""
        raise NotImplementedError

    def complete(self) -> bool:
        """Whether all was done that the job is for: a Ctrl-C that comes too late for that cancels nothing."""
        raise NotImplementedError

    def result(self) -> dict[str, Any]:
        """What goes into `result.json` below `status`: always every key, null where nothing is known."""
        return {
            "cluster": self.inventory.cluster,
            "workers": len(self.inventory.of_role("worker")),
            "ps": len(self.inventory.of_role("ps")),
            "elapsed_seconds": self.elapsed_seconds(),
        }

    def elapsed_seconds(self) -> float:
        """Since the job began."""
        return time.monotonic() - self.begin


class Watch(AbstractContextManager["Watch"]):
    """Hooks around a job's life, and a consumer of its events; the default does nothing. A context manager."""

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
    """Prepare and run the job; where its result lies, and the result, whose `status` is done or cancelled.

    With `resumed`, the folder of a run that was interrupted, the job continues there. `watch` gets its events from the
    preparation on, which has no folder yet.

    Raises ClusterError: without a trace in `runs` for a run that another process writes, and for bad input; later with
    `status` failed and the `reason` in the result file.
    """
    watch = watch or Watch()
    with ExitStack() as held:
        # Before anything is read or written: the run may be alive, and its files belong to the process that has it.
        if resumed is not None:
            held.callback(WriterLock(resumed).release)
            unfinished(resumed)  # its last holder may have finished it since it was chosen
        held.enter_context(watch)
        job.stream.add(watch.consume)
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
    with (
        RunLog(folder.path / "coordinator.log") as run_log,
        reported(folder.path, environment),
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
        except Cancelled:
            pass
        except ClusterError as problem:
            _record_failure(job, folder, problem)
            raise
        except Exception as problem:
            run_log.keep_traceback(problem)
            crashed = Crashed(
                f"{job.name} failed on something unforeseen, {type(problem).__name__}: {reason_of(problem)}. The "
                f"traceback is in {run_log.path}: please report it"
            )
            _record_failure(job, folder, crashed)
            raise crashed from None
        status: Literal["done", "cancelled"] = "cancelled" if cancel.asked and not job.complete() else "done"
        result = _complete(job, status)
        log.info("%s: %s", job.name, status)
        path = folder.write_result(result)
        job.stream.emit(Ended(status))
        return path, result


def _write_run_file(run: Path) -> None:
    """Leave the run's folder where the process that restarts a killed coordinator looks for it."""
    named = os.environ.get(RUN_FILE)
    if named:
        atomic_write(Path(named), str(run.resolve()).encode() + b"\n")


def _record_failure(job: Job, folder: RunFolder, problem: ClusterError) -> None:
    """In the result and the history; if the disk refuses that too, the user still sees the problem itself."""
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
