"""The jobs of a cluster as commands see them: on this machine, pending ones, their metrics."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from cluster.apps.environments import local_environments, python_of
from core.control.client import program
from core.control.own_state import VARIABLE, make_private
from core.ground.errors import ClusterError, ExitCode, UsageError
from core.ground.files import atomic_write, read_json
from core.ground.locks import FileLock, LockHeldError, held_by
from core.logs import say
from core.metrics import UNCOUNTED
from deploy.cluster.cluster import ManagedCluster
from deploy.cluster.fleet import Fleet
from deploy.cluster.services import ClusterStatus
from deploy.common.command_line import command, settings
from deploy.common.interrupts import waiting_for
from deploy.common.project import environment_for_any_folder, module_command
from deploy.jobs.apps import app_of_job
from deploy.jobs.foreground_job import (
    JobProcess,
    JobRestartPolicy,
    WaitingJob,
    run_to_its_end,
)
from deploy.jobs.records import JobRecord, JobState
from deploy.jobs.request import RESUMABLE
from deploy.rooted.commands import PYTHON

if TYPE_CHECKING:
    from cluster.programs.program import ProgramRequest
    from core.inventory import Inventory
    from deploy.jobs.node_jobs import NodeJobs
    from deploy.jobs.sweeps import SweepRequest


ANSWER_SECONDS = 2.0
MOST_METRICS_BYTES = 32 << 20
"""The bound for a coordinator, which exports some 9 KB for each worker."""
_ASK = f"""\
import sys
try:
    answer = ask(
        sys.argv[1], "GET", "{UNCOUNTED}",
        deadline_seconds={ANSWER_SECONDS}, most_bytes={MOST_METRICS_BYTES}
    )
    for line in answer.text.splitlines(keepends=True):
        if 'role="worker"' not in line or line.startswith("pscluster_pi_"):
            sys.stdout.write(line)
except NoAnswerError as problem:
    if not problem.refused:
        sys.exit(str(problem))
"""
_MAY_SUCCEED = (JobState.WAITING, JobState.RUNNING, JobState.DONE)


@dataclass(frozen=True)
class JobSpec:
    """A job as a person asks for it, with flags of `python -m cluster`.

    `program` is what the job `run` runs, `sweep` the runs of the job `sweep`.
    """

    job: str
    flags: tuple[str, ...] = ()
    program: "ProgramRequest | None" = None
    sweep: "SweepRequest | None" = None

    @property
    def trains(self) -> str:
        """The job whose app and data it takes."""
        if self.sweep is not None:
            return "train"
        return self.job

    @property
    def on_workers(self) -> bool:
        """Whether the workers' nodes carry it out, without the cluster's roles."""
        if self.sweep is not None:
            return not self.sweep.on_roles
        return self.program is not None and self.program.on == "workers"

    def inventory(self, common: "Inventory") -> "Inventory":
        """Return the inventory of what it trains; `common` is the cluster's own."""
        if self.sweep is not None:
            return self.sweep.usual
        return common

    @property
    def requirements(self) -> Path | None:
        """The file of further packages that its program names.

        Raises UsageError where there is none.
        """
        if self.program is None or not self.program.requirements:
            return None
        path = Path(self.program.requirements)
        if not path.is_file():
            raise UsageError(
                f"--requirements {path}: cannot be read: expected a file of packages, found none"
            )
        return path


class JobServices(ABC):
    """The jobs of one cluster: on this machine, or on the coordinator's node."""

    def __init__(self, cluster: ManagedCluster) -> None:
        self._cluster = cluster
        self.pending = PendingJobs(cluster.folder.path / "pending_jobs.json")

    @abstractmethod
    def run(self, spec: JobSpec) -> int:
        """Run one job to its end; its exit code, or 130 where it is left running.

        A killed coordinator, or one that loses a parameter server, starts again with its roles.
        Raises ClusterError when another job runs on the cluster, or when the roles do not restart.
        """

    @abstractmethod
    def run_jobs(self, order: Sequence[str], flags: Sequence[str]) -> int:
        """Run jobs in their order, each when the one before is done.

        Returns 0, or the first other exit code.
        """

    def ahead(self, order: Sequence[str], flags: Sequence[str]) -> AbstractContextManager[object]:
        """Load what `run_jobs` needs inside, while the roles start."""
        return nullcontext()

    @abstractmethod
    def running_job(self) -> int | None:
        """Pid of the command of this machine that runs a job on this cluster, None without one."""

    @abstractmethod
    def node_jobs(self) -> "AbstractContextManager[NodeJobs | None]":
        """Give the jobs that outlive their command; None where every job runs in the foreground."""


def coordinator_metrics(cluster: ManagedCluster, fleet: Fleet) -> str:
    """Return the running job's own metrics, without those by worker.

    They are empty where no process listens, so that no job runs.

    Its own node asks it: the firewall refuses others. Raises ClusterError where the node or the job
    gives no answer: a job may run then.
    """
    coordinator = cluster.inventory.task("coordinator", 0)
    command_line = [PYTHON, "-", coordinator.metrics_address]
    answer = fleet.nodes[coordinator.node].run(command_line, stdin=program(_ASK), root=True)
    if not answer.ok:
        raise ClusterError(f"{coordinator.node}: {' '.join(answer.last_lines[-1:])}")
    return answer.text


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
        """Return the ids of the first jobs of the order, which are on the coordinator's node.

        A damaged note has none.
        """
        try:
            note: Any = read_json(self._path)
            return tuple(str(name) for name in note["submitted"])
        except (OSError, ValueError, LookupError, TypeError):
            return ()

    def note(self, submitted: Sequence[str] = ()) -> None:
        """Note that every job but these has to run. Raises ClusterError."""
        make_private(self._path.parent)
        atomic_write(self._path, json.dumps({"submitted": list(submitted)}).encode() + b"\n")

    def forget(self) -> None:
        """Forget it: every job is submitted."""
        self._path.unlink(missing_ok=True)


def _nothing() -> None:
    """Restart no roles."""


def environment_here(requirements: Path) -> str:
    """Make the environment of a requirements file on this machine.

    Returns its key, empty where ours has all of it.
    """
    from deploy.release.extras import (  # most jobs need none of it
        Base,
        environment_for,
        lock_packages,
    )

    with waiting_for(f"locking {requirements}"):
        lock = lock_packages(requirements, Base.of_this_process())
    environment_for(lock, lambda line: say(line, error=True))
    return lock.key


def reusable(
    submitted: Sequence[str], order: Sequence[str], records: Sequence[JobRecord]
) -> tuple[str, ...]:
    """The submitted ids if the rest of `order` can follow them, else none. Pure.

    None if the order has changed, or if one of them is missing, failed or cancelled: the rest would
    never begin.
    """
    records_by_id = {record.id: record for record in records}
    submitted_records = [records_by_id[name] for name in submitted if name in records_by_id]
    whole = len(submitted_records) == len(submitted) and [
        record.job for record in submitted_records
    ] == list(order[: len(submitted_records)])
    if whole and all(record.state in _MAY_SUCCEED for record in submitted_records):
        return tuple(submitted)
    return ()


class ForegroundJobs(JobServices):
    """`JobServices` of a cluster on this machine: one job at a time, a child of this command."""

    def __init__(
        self,
        cluster: ManagedCluster,
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
        self._waiting: WaitingJob | None = None

    @override
    def run(self, spec: JobSpec) -> int:
        on_roles = not spec.on_workers and self._inventory.needs_roles(spec.job)
        return self._run_process(self._process(spec), self._restart if on_roles else _nothing)

    def _process(self, spec: JobSpec) -> JobProcess:
        path = self._inventory.path
        flags = [*spec.flags]
        if spec.program is not None:
            request = spec.program
            if spec.requirements is not None:
                key = environment_here(spec.requirements)
                if key:
                    python = str(python_of(local_environments(), key))
                else:
                    python = ""
                request = replace(request, python=python)
            flags += ["--program", request.to_text()]
        if spec.sweep is not None:
            flags = ["--sweep", str(spec.sweep.file), *flags]
        trained = spec.inventory(self._inventory)
        flags += app_of_job(trained, spec.trains, flags, environment_here).flags
        if spec.sweep is not None:
            from deploy.jobs.sweeps import search_flags

            flags += search_flags(spec.sweep, environment_here)
        self._folder.create()  # it is missing where no job needed roles yet
        return JobProcess(
            name=spec.job,
            inventory=path,
            command_line=(
                *self._coordinator,
                spec.job,
                "--inventory",
                str(path.resolve()),
                *settings(self._cluster.overrides),
                *flags,
            ),
            environment={
                **environment_for_any_folder(),
                "PSCLUSTER_SUPERVISOR": str(self._folder.control_socket),
                VARIABLE: self._folder.token(),
            },
            run_file=self._folder.run_file,
            resumable=spec.job in RESUMABLE,
        )

    def _run_process(self, process: JobProcess, restart: Callable[[], None]) -> int:
        waiting = self._waiting
        if waiting is not None and waiting.job != process:
            waiting = None
        try:
            with FileLock(self._folder.job_lock):
                try:
                    return run_to_its_end(process, restart, self._policy, waiting)
                finally:
                    self._folder.run_file.unlink(missing_ok=True)
        except LockHeldError as error:
            raise ClusterError(
                f"a job is running on cluster {self._inventory.cluster} already (fab, pid"
                f" {error.pid}): wait for it, or `kill -INT {error.pid}` ends it with its result"
                " so far"
            ) from error

    @override
    def run_jobs(self, order: Sequence[str], flags: Sequence[str]) -> int:
        self.pending.forget()
        if self._share_a_process(order):
            return self._run_process(self._process_of_all(order, flags), self._restart)
        for number, job in enumerate(order, 1):
            say(f"job {number} of {len(order)}: {job}")
            code = self.run(JobSpec(job, tuple(flags)))
            if code:
                return code
        return ExitCode.DONE

    @override
    @contextmanager
    def ahead(self, order: Sequence[str], flags: Sequence[str]) -> Iterator[None]:
        if not self._share_a_process(order):
            yield
            return
        with WaitingJob(self._process_of_all(order, flags)) as self._waiting:
            try:
                yield
            finally:
                self._waiting = None

    def _share_a_process(self, order: Sequence[str]) -> bool:
        """Return whether one coordinator runs these jobs: on the roles, without an app's packages.

        A job without roles takes this machine's devices when TensorFlow is loaded. A run to
        evaluate may be of an app, unless this order trains it.
        """
        jobs = self._inventory.jobs
        no_app = jobs.train.app is None
        if "evaluate" in order:
            trained = "train" in order[: order.index("evaluate")]
            no_app = no_app and trained and jobs.evaluate.run is None
        return no_app and bool(order) and all(map(self._inventory.needs_roles, order))

    def _process_of_all(self, order: Sequence[str], flags: Sequence[str]) -> JobProcess:
        processes = [self._process(JobSpec(job, tuple(flags))) for job in order]
        return replace(processes[0], following=tuple(processes[1:]), of=len(order))

    @override
    def running_job(self) -> int | None:
        return held_by(self._folder.job_lock)

    @override
    def node_jobs(self) -> AbstractContextManager[None]:
        return nullcontext()

    def _restart(self) -> None:
        now = self._restart_roles()
        if not now.serves_jobs:
            unwell = "; ".join(
                f"{role.name} {role.state}: {role.reason}" for role in now.roles if role.reason
            )
            logs, restart = (
                command(f"deploy {action}", self._inventory.path) for action in ("logs", "restart")
            )
            raise ClusterError(
                f"the job cannot be started again, its roles do not restart: {unwell}; `{logs}`"
                f" shows why, `{restart}` tries it again"
            )
