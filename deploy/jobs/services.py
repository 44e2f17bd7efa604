"""The jobs of a cluster as commands see them: those of this machine, those that a start still has to run, metrics."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.apps.environments import local_environments, python_of
from cluster.atomic_write import atomic_write
from cluster.control.client import program
from cluster.control.token import VARIABLE
from cluster.errors import ClusterError, ExitCode, UsageError
from cluster.logs.terminal import say
from cluster.metrics.scrapes import UNCOUNTED
from deploy.cluster.cluster import Cluster
from deploy.cluster.fleet import Fleet
from deploy.cluster.services import ClusterStatus
from deploy.common.command_line import command
from deploy.common.file_lock import FileLock, LockHeldError, held_by
from deploy.common.project import environment_for_any_folder, module_command
from deploy.common.waiting import waiting_for
from deploy.jobs.apps import app_of_job
from deploy.jobs.foreground_job import JobProcess, JobRestartPolicy, run_to_its_end
from deploy.jobs.node_job.records import JobRecord, JobState
from deploy.jobs.request import RESUMABLE, needs_roles

if TYPE_CHECKING:
    from cluster.programs.wish import ProgramWish
    from deploy.jobs.node_jobs import NodeJobs
    from deploy.jobs.sweeps import SweepOrder


ANSWER_SECONDS = 2.0
_ASK = f"""\
import sys
sys.stdout.write(ask(sys.argv[1], "GET", "{UNCOUNTED}", deadline_seconds={ANSWER_SECONDS}).text)
"""
_MAY_SUCCEED = (JobState.WAITING, JobState.RUNNING, JobState.DONE)


class JobServices(ABC):
    """The jobs of one cluster: `ForegroundJobs` on this machine, `SubmittedJobs` on the coordinator's node."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.pending = PendingJobs(cluster.folder.path / "pending_jobs.json")

    @abstractmethod
    def run_job(self, job: str, flags: Sequence[str]) -> int:
        """Run one job to its end, with these flags of `python -m cluster`; its exit code.

        A killed coordinator, or one that loses a parameter server, starts again with its roles. Raises ClusterError
        when another job runs on the cluster, or when the roles do not restart.
        """

    @abstractmethod
    def run_program(self, wish: "ProgramWish", flags: Sequence[str]) -> int:
        """Run a person's program to its end, as `run_job` does; its job's exit code."""

    @abstractmethod
    def run_sweep(self, order: "SweepOrder", flags: Sequence[str]) -> int:
        """Train the runs of a sweep, as `run_job` does; its job's exit code."""

    @abstractmethod
    def run_jobs(self, order: Sequence[str], flags: Sequence[str]) -> int:
        """Run jobs in their order, each once the one before is done; 0, or the first other exit code."""

    @abstractmethod
    def running_job(self) -> int | None:
        """Pid of the command of this machine that runs a job on this cluster, None without one."""

    @abstractmethod
    def node_jobs(self) -> "AbstractContextManager[NodeJobs | None]":
        """The jobs that outlive the command that began them; None where every job runs in the foreground."""


def coordinator_metrics(cluster: Cluster, fleet: Fleet) -> str:
    """The metrics of the running job; empty where none runs, or where the coordinator's node does not answer.

    Its own node asks it: the firewall refuses others.
    """
    (coordinator,) = cluster.inventory.of_role("coordinator")
    words = ["python3", "-", coordinator.metrics_address]
    try:
        return fleet.nodes[coordinator.node].run(words, stdin=program(_ASK), root=True).text
    except ClusterError:
        return ""


class PendingJobs:
    """A note on the operator's machine of the jobs that a `start` still has to submit.

    It exists from before the first change of a node until every job is submitted.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def noted(self) -> bool:
        """Whether jobs have to run, whatever the plan says."""
        return self._path.exists()

    @property
    def submitted(self) -> tuple[str, ...]:
        """Ids of the first jobs of the order, which are on the coordinator's node; empty for a damaged note."""
        try:
            note: Any = json.loads(self._path.read_text(encoding="utf-8"))
            return tuple(str(name) for name in note["submitted"])
        except (OSError, ValueError, LookupError, TypeError):
            return ()

    def note(self, submitted: Sequence[str] = ()) -> None:
        """Every job but these has to run. Raises ClusterError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self._path, json.dumps({"submitted": list(submitted)}).encode() + b"\n")

    def forget(self) -> None:
        """Every job is submitted."""
        self._path.unlink(missing_ok=True)


def requirements_of(wish: "ProgramWish") -> Path:
    """The file of further packages that a program names. Raises UsageError where there is none."""
    path = Path(wish.requirements)
    if not path.is_file():
        raise UsageError(f"--requirements {path}: cannot be read: expected a file of packages, found none")
    return path


def environment_here(requirements: Path) -> str:
    """Make the environment of a requirements file on this machine; its key, empty where ours has all of it."""
    from deploy.release.extras import Base, environment_for, locked  # most jobs need none of it

    with waiting_for(f"locking {requirements}"):
        lock = locked(requirements, Base.of_this_process())
    environment_for(lock, lambda line: say(line, error=True))
    return lock.key


def reusable(submitted: Sequence[str], order: Sequence[str], records: Sequence[JobRecord]) -> tuple[str, ...]:
    """The submitted ids if the rest of `order` can follow them, else none. Pure.

    None if the order has changed, or if one of them is missing, failed or cancelled: the rest would never begin.
    """
    there = {record.id: record for record in records}
    found = [there[name] for name in submitted if name in there]
    whole = len(found) == len(submitted) and [record.job for record in found] == list(order[: len(found)])
    return tuple(submitted) if whole and all(record.state in _MAY_SUCCEED for record in found) else ()


class ForegroundJobs(JobServices):
    """`JobServices` of a cluster on this machine: one job at a time, a child of this command."""

    def __init__(
        self,
        cluster: Cluster,
        restart_roles: Callable[[], ClusterStatus],
        coordinator: Sequence[str] = module_command("cluster"),
        policy: JobRestartPolicy = JobRestartPolicy(),  # noqa: B008  frozen
    ) -> None:
        """`coordinator` is the command that takes a job's name and flags."""
        super().__init__(cluster)
        self._inventory = cluster.inventory
        self._folder = cluster.folder
        self._restart_roles = restart_roles
        self._coordinator = tuple(coordinator)
        self._policy = policy

    def run_job(self, job: str, flags: Sequence[str]) -> int:
        """See `JobServices`."""
        return self._run(job, flags, needs_roles(self._inventory, job))

    def run_program(self, wish: "ProgramWish", flags: Sequence[str]) -> int:
        """See `JobServices`."""
        if wish.requirements:
            key = environment_here(requirements_of(wish))
            wish = replace(wish, python=str(python_of(local_environments(), key)) if key else "")
        return self._run("run", [*flags, "--wish", wish.to_text()], needs_roles(self._inventory, "run", wish))

    def run_sweep(self, order: "SweepOrder", flags: Sequence[str]) -> int:
        """See `JobServices`."""
        app = app_of_job(order.usual, "train", flags, environment_here)
        from deploy.jobs.sweeps import search_flags

        words = ["--sweep", str(order.file), *flags, *app.flags, *search_flags(order, environment_here)]
        return self._run("sweep", words, order.on_roles)

    def _run(self, job: str, flags: Sequence[str], on_roles: bool) -> int:
        path = self._inventory.path
        app = app_of_job(self._inventory, job, flags, environment_here)
        settings = [word for override in self._cluster.overrides for word in ("--set", override)]
        self._folder.create()  # it is missing where no job needed roles yet
        process = JobProcess(
            name=job,
            inventory=path,
            words=(*self._coordinator, job, "--inventory", str(path.resolve()), *settings, *flags, *app.flags),
            environment={
                **environment_for_any_folder(),
                "PSCLUSTER_SUPERVISOR": str(self._folder.control_socket),
                VARIABLE: self._folder.token(),
            },
            run_file=self._folder.run_file,
            resumable=job in RESUMABLE,
        )
        restart = self._restart if on_roles else lambda: None
        try:
            with FileLock(self._folder.job_lock):
                try:
                    return run_to_its_end(process, restart, self._policy)
                finally:
                    self._folder.run_file.unlink(missing_ok=True)
        except LockHeldError as error:
            raise ClusterError(
                f"a job is running on cluster {self._inventory.cluster} already (fab, pid {error.pid}): wait for it, "
                f"or `kill -INT {error.pid}` ends it with its result so far"
            ) from error

    def run_jobs(self, order: Sequence[str], flags: Sequence[str]) -> int:
        """See `JobServices`."""
        self.pending.forget()
        for number, job in enumerate(order, 1):
            say(f"job {number} of {len(order)}: {job}")
            code = self.run_job(job, flags)
            if code:
                return code
        return ExitCode.DONE

    def running_job(self) -> int | None:
        """See `JobServices`."""
        return held_by(self._folder.job_lock)

    def node_jobs(self) -> AbstractContextManager[None]:
        """See `JobServices`."""
        return nullcontext()

    def _restart(self) -> None:
        now = self._restart_roles()
        if not now.serves_jobs:
            unwell = "; ".join(f"{role.name} {role.state}: {role.reason}" for role in now.roles if role.reason)
            logs, restart = (command(f"deploy {action}", self._inventory.path) for action in ("logs", "restart"))
            raise ClusterError(
                f"the job cannot be started again, its roles do not restart: {unwell}; `{logs}` shows why, "
                f"`{restart}` tries it again"
            )
