"""`connection: local`: the role processes of a cluster on this machine, kept by its supervisor."""

import contextlib
import os
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cluster.errors import ClusterError, UsageError
from deploy.cluster.role_status import ClusterStatus, RoleState, RoleStatus
from deploy.cluster.services import LogFile, Report, StopReport
from deploy.common.hints import command
from deploy.common.project import module_command
from deploy.common.state_folder import StateFolder
from deploy.converge.plan import disagreement
from deploy.jobs.foreground_job import INTERRUPT_DEADLINE_SECONDS, ForegroundJobs
from deploy.jobs.job_restart import JobRestartPolicy
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
        restart = lambda: self.restart((), lambda _: None)  # noqa: E731
        self._jobs = ForegroundJobs(inventory, overrides, restart, coordinator, job_restarts)
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
        return self._jobs.run(job, flags)

    def running_job(self) -> int | None:
        """See `Services`."""
        return self._jobs.running

    def node_jobs(self) -> contextlib.AbstractContextManager[None]:
        """See `Services`: a job here is a child of the `fab` that runs it."""
        return contextlib.nullcontext()

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
