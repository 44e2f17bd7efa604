"""The jobs of a cluster on this machine: children of the `fab` that begins them."""

import contextlib
from collections.abc import Sequence

from cluster.control.token import VARIABLE
from cluster.errors import ClusterError, ExitCode, UsageError
from cluster.logs.terminal import say
from deploy.cluster.cluster import Cluster
from deploy.cluster.local import Local
from deploy.common.file_lock import FileLock, LockHeldError, held_by
from deploy.common.hints import command
from deploy.common.project import environment_for_any_folder, module_command
from deploy.converge.facts import recordings_of
from deploy.converge.publication import Publication
from deploy.jobs.attached_job import PendingJobs
from deploy.jobs.foreground_job import JobProcess, run_to_its_end
from deploy.jobs.job_restart import JobRestartPolicy
from deploy.jobs.request import needs_data
from deploy.jobs.services import pending_jobs
from deploy.supervisor.services import Supervised


class LocalJobs:
    """`JobServices` on this machine."""

    def __init__(
        self,
        cluster: Cluster,
        services: Supervised,
        coordinator: Sequence[str] = module_command("cluster"),
        job_restarts: JobRestartPolicy = JobRestartPolicy(),  # noqa: B008  frozen
    ) -> None:
        """`coordinator` is the command that takes a job's name and flags."""
        self._cluster = cluster
        self._inventory = cluster.inventory
        self._folder = cluster.folder
        self._services = services
        self._coordinator = tuple(coordinator)
        self._job_restarts = job_restarts

    @property
    def pending(self) -> PendingJobs:
        """See `JobServices`."""
        return pending_jobs(self._cluster)

    def publications(self) -> Sequence[Publication]:
        """See `JobServices`: a job prepares its windows itself."""
        return ()

    def refuse_missing_data(self) -> None:
        """See `JobServices`."""
        source = self._inventory.jobs.train.data.source
        if source is None or not any(map(needs_data, self._inventory.jobs.order)):
            return
        found = recordings_of(Local("this machine"), source)
        if not found.holds:
            raise UsageError(found.line)

    def run_jobs(self, order: Sequence[str], flags: Sequence[str]) -> int:
        """See `JobServices`."""
        self.pending.forget()
        for number, job in enumerate(order, 1):
            say(f"job {number} of {len(order)}: {job}")
            code = self.run_job(job, flags)
            if code:
                return code
        return ExitCode.DONE

    def run_job(self, job: str, flags: Sequence[str]) -> int:
        """See `JobServices`."""
        settings = [word for override in self._cluster.overrides for word in ("--set", override)]
        self._folder.create()  # nothing else has, where the job needs no roles
        plan = JobProcess(
            name=job,
            inventory=self._inventory.path,
            words=(*self._coordinator, job, "--inventory", str(self._inventory.path.resolve()), *settings, *flags),
            environment={
                **environment_for_any_folder(),
                "PSCLUSTER_SUPERVISOR": str(self._folder.control_socket),
                VARIABLE: self._folder.token(),
            },
            run_file=self._folder.run_file if job == "train" else None,
        )
        bring_roles_back = self._bring_roles_back if self._inventory.needs_roles(job) else lambda: None
        try:
            with FileLock(self._folder.job_lock):
                try:
                    return run_to_its_end(plan, bring_roles_back, self._job_restarts)
                finally:
                    self._folder.run_file.unlink(missing_ok=True)
        except LockHeldError as error:
            raise ClusterError(
                f"a job is running on cluster {self._inventory.cluster} already (fab, pid {error.pid}): wait for it, "
                f"or `kill -INT {error.pid}` ends it with its result so far"
            ) from error

    def running_job(self) -> int | None:
        """See `JobServices`."""
        return held_by(self._folder.job_lock)

    def node_jobs(self) -> contextlib.AbstractContextManager[None]:
        """See `JobServices`: a job here is a child of the `fab` that runs it."""
        return contextlib.nullcontext()

    def _bring_roles_back(self) -> None:
        now = self._services.restart_in_place(())
        if not now.serves_jobs:
            unwell = "; ".join(f"{role.name} {role.state}: {role.reason}" for role in now.roles if role.reason)
            logs, restart = (command(f"deploy {action}", self._inventory.path) for action in ("logs", "restart"))
            raise ClusterError(
                f"the job cannot be started again, its roles do not come back: {unwell}; `{logs}` shows why, "
                f"`{restart}` tries it anew"
            )
