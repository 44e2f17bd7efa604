"""`connection: local`: the role processes of a cluster on this machine, kept by its supervisor."""

import contextlib
import os
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cluster.control.token import VARIABLE
from cluster.errors import ClusterError, UsageError
from deploy.cluster.role_status import ClusterStatus, RoleState, RoleStatus
from deploy.cluster.services import LogFile, Report, StopReport
from deploy.common.file_lock import FileLock, LockHeldError, held_by
from deploy.common.hints import command
from deploy.common.project import environment_for_any_folder, module_command
from deploy.common.state_folder import StateFolder
from deploy.converge.plan import disagreement
from deploy.jobs.foreground_job import INTERRUPT_DEADLINE_SECONDS, JobProcess, run_to_its_end
from deploy.jobs.job_restart import JobRestartPolicy
from deploy.jobs.request import needs_roles
from deploy.supervisor.control_client import NobodyListensError
from deploy.supervisor.handle import SupervisorHandle, wait_until
from deploy.supervisor.launches import kept_tasks
from deploy.supervisor.role import Deadlines

if TYPE_CHECKING:
    from cluster.inventory import Inventory


class LocalServices:
    """`Services` over the supervisor of one inventory."""

    def __init__(
        self,
        inventory: "Inventory",
        overrides: Sequence[str],
        coordinator: Sequence[str] = module_command("cluster"),
        job_restarts: JobRestartPolicy = JobRestartPolicy(),  # noqa: B008  frozen
    ) -> None:
        """`coordinator` is the command that takes a job's name and flags."""
        self._coordinator = tuple(coordinator)
        self._job_restarts = job_restarts
        self._jobs_with_roles = frozenset(job for job in ("train", "evaluate", "pi") if needs_roles(inventory, job))
        self._cluster = inventory.cluster
        self._as_given = inventory.path
        self._inventory = inventory.path.resolve()
        self._overrides = tuple(overrides)
        self._tasks = kept_tasks(inventory.tasks())
        self._folder = StateFolder.beside(inventory.path, inventory.cluster)
        self._supervisor = SupervisorHandle(inventory.cluster, self._folder, inventory.path, len(self._tasks))

    def status(self) -> ClusterStatus:
        """See `Services`."""
        try:
            return self._supervisor.client().status()
        except NobodyListensError:
            return self._stopped()

    def start(self, report: Report) -> ClusterStatus:
        """See `Services`. Raises UsageError when other roles run than the inventory says."""
        try:
            status = self._supervisor.client().status()
        except NobodyListensError:
            self._supervisor.launch(self._inventory, self._overrides)
            status = self._supervisor.client().status()
        problem = disagreement(self._tasks, status, self._as_given)
        if problem:
            raise UsageError(problem)
        unwell = [role.name for role in status.in_state(RoleState.FAILED, RoleState.FROZEN)]
        return self.restart(unwell, report) if unwell else self._settled(report)

    def restart(self, names: Sequence[str], report: Report) -> ClusterStatus:
        """See `Services`. Raises ClusterError when nothing runs."""
        try:
            self._supervisor.client(Deadlines().stop_seconds + 10.0).ask("restart", tasks=list(names))
        except NobodyListensError as error:
            raise ClusterError(
                f"cluster {self._cluster} is not running: `{command('deploy start', self._as_given)}` starts it"
            ) from error
        return self._settled(report)

    def stop(self) -> StopReport:
        """See `Services`."""
        job = self.running_job()
        if job is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(job, signal.SIGINT)
                if not wait_until(lambda: self.running_job() is None, INTERRUPT_DEADLINE_SECONDS + 10.0):
                    os.kill(job, signal.SIGKILL)  # its job dies with it
        return self._supervisor.stop()

    def logs(self) -> Sequence[LogFile]:
        """See `Services`."""
        names = ["supervisor", *(task.name for task in self._tasks)]
        return [LogFile(name, self._folder.log(name)) for name in names]

    def run_job(self, job: str, flags: Sequence[str]) -> int:
        """See `Services`."""
        settings = [word for override in self._overrides for word in ("--set", override)]
        self._folder.create()  # nothing else has, where the job needs no roles
        plan = JobProcess(
            name=job,
            inventory=self._as_given,
            words=(*self._coordinator, job, "--inventory", str(self._inventory), *settings, *flags),
            environment={
                **environment_for_any_folder(),
                "PSCLUSTER_SUPERVISOR": str(self._folder.control_socket),
                VARIABLE: self._folder.token(),
            },
            run_file=self._folder.run_file if job == "train" else None,
        )
        bring_roles_back = self._bring_roles_back if job in self._jobs_with_roles else lambda: None
        try:
            with FileLock(self._folder.job_lock):
                try:
                    return run_to_its_end(plan, bring_roles_back, self._job_restarts)
                finally:
                    self._folder.run_file.unlink(missing_ok=True)
        except LockHeldError as error:
            raise ClusterError(
                f"a job is running on cluster {self._cluster} already (fab, pid {error.pid}): wait for it, "
                f"or `kill -INT {error.pid}` ends it with its result so far"
            ) from error

    def running_job(self) -> int | None:
        """See `Services`."""
        return held_by(self._folder.job_lock)

    def node_jobs(self) -> contextlib.AbstractContextManager[None]:
        """See `Services`: a job here is a child of the `fab` that runs it."""
        return contextlib.nullcontext()

    def _bring_roles_back(self) -> None:
        now = self.restart((), lambda _: None)
        if not now.serves_jobs:
            unwell = "; ".join(f"{role.name} {role.state}: {role.reason}" for role in now.roles if role.reason)
            raise ClusterError(
                f"the job cannot be started again, its roles do not come back: {unwell}; "
                f"`{command('deploy logs', self._as_given)}` shows why, `{command('deploy restart', self._as_given)}` "
                "tries it anew"
            )

    def _stopped(self) -> ClusterStatus:
        roles = (
            RoleStatus(task.role, task.index, task.node, task.address, task.metrics_address, RoleState.STOPPED)
            for task in self._tasks
        )
        return ClusterStatus(self._cluster, tuple(roles))

    def _settled(self, report: Report) -> ClusterStatus:
        # Between two changes of state lies at most one role's start.
        with contextlib.closing(self._supervisor.client(Deadlines().ready_seconds + 30.0).watch()) as changes:
            for status in changes:
                report(status)
                if status.settled:
                    return status
        raise ClusterError(
            f"the supervisor of cluster {self._cluster} ended before its roles were ready; "
            f"`{command('deploy logs --role supervisor', self._as_given)}` shows why"
        )
