"""A supervisor's life around its event loop: the lock, what a crash left, the pid file, the log."""

import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from cluster.errors import ClusterError
from cluster.inventory.task import Task
from cluster.logs import LogSettings, Speaker, begin
from deploy.common.file_lock import FileLock, LockHeldError
from deploy.common.hints import command
from deploy.common.state_folder import StateFolder
from deploy.supervisor import leftovers
from deploy.supervisor.policy import RestartPolicy
from deploy.supervisor.role import Deadlines
from deploy.supervisor.role_process import LaunchPlan
from deploy.supervisor.supervisor import Supervisor

log = logging.getLogger("pscluster.supervisor")


def serve(
    cluster: str,
    launches: Sequence[tuple[Task, LaunchPlan]],
    folder: StateFolder,
    inventory: Path,
    policy: RestartPolicy = RestartPolicy(),  # noqa: B008  all are frozen
    deadlines: Deadlines = Deadlines(),  # noqa: B008
    logs: LogSettings = LogSettings(),  # noqa: B008
) -> None:
    """Be the supervisor of `cluster`, started from the file `inventory`, until it is stopped.

    Raises ClusterError when it already has one.
    """
    begin(Speaker("supervisor"), logs)
    folder.create()
    try:
        lock = FileLock(folder.lock)
    except LockHeldError as error:
        raise ClusterError(
            f"cluster {cluster} already has a supervisor (pid {error.pid}): "
            f"`{command('deploy status', inventory)}` shows it"
        ) from error
    with lock:
        folder.create()  # again: a `stop` that ends meanwhile removes the sockets' own folder, under the lock
        killed = leftovers.clear(folder.roles)
        log.info("supervisor of cluster %s started with pid %d", cluster, os.getpid())
        if killed:
            log.warning("processes %s of an earlier supervisor were still there: killed", list(killed))
        folder.pid.write_text(f"{os.getpid()}\n")
        try:
            asyncio.run(Supervisor(cluster, launches, folder, inventory, os.getpid(), policy, deadlines).run())
        finally:
            folder.remove_sockets()
            folder.pid.unlink(missing_ok=True)
    log.info("supervisor of cluster %s ended", cluster)
