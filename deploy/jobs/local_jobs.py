"""The jobs of a cluster on this machine: foreground children of the `fab` that begins them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from cluster.control.token import VARIABLE
from cluster.errors import ClusterError, ExitCode
from cluster.logs.terminal import say
from deploy.cluster.cluster import Cluster
from deploy.cluster.role_status import ClusterStatus
from deploy.common.file_lock import FileLock, LockHeldError, held_by
from deploy.common.hints import command
from deploy.common.project import environment_for_any_folder, module_command
from deploy.jobs.foreground_job import JobProcess, run_to_its_end
from deploy.jobs.job_restart import JobRestartPolicy
from deploy.jobs.services import PendingJobs


class ForegroundJobs:
    """`JobServices` of a cluster on this machine: one job at a time, a child of this command."""

    def __init__(
        self,
        cluster: Cluster,
        restart_roles: Callable[[], ClusterStatus],
        coordinator: Sequence[str] = module_command("cluster"),
        policy: JobRestartPolicy = JobRestartPolicy(),  # noqa: B008  frozen
    ) -> None:
        """`coordinator` is the command that takes a job's name and flags."""
        self._cluster = cluster
        self._inventory = cluster.inventory
        self._folder = cluster.folder
        self._restart_roles = restart_roles
        self._coordinator = tuple(coordinator)
        self._policy = policy

    @property
    def pending(self) -> PendingJobs:
        """See `JobServices`."""
        return PendingJobs.of(self._cluster)

    def run_job(self, job: str, flags: Sequence[str]) -> int:
        """See `JobServices`."""
        path = self._inventory.path
        settings = [word for override in self._cluster.overrides for word in ("--set", override)]
        self._folder.create()  # it is missing where no job needed roles yet
        process = JobProcess(
            name=job,
            inventory=path,
            words=(*self._coordinator, job, "--inventory", str(path.resolve()), *settings, *flags),
            environment={
                **environment_for_any_folder(),
                "PSCLUSTER_SUPERVISOR": str(self._folder.control_socket),
                VARIABLE: self._folder.token(),
            },
            run_file=self._folder.run_file if job == "train" else None,
        )
        restart = self._restart if self._inventory.needs_roles(job) else lambda: None
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
