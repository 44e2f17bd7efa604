"""Waiting for the job before: jobs in an order go on in it when nobody is there to begin the next one."""

import time
from dataclasses import replace
from os import getpid

from cluster.errors import ClusterError, ExitCode
from cluster.server.systemd import notify
from deploy.jobs.foreground_job import interruptible, tell
from deploy.jobs.node_job.clock import now
from deploy.jobs.node_job.folders import JobFolder, JobsRoot
from deploy.jobs.node_job.records import JobRecord, JobState, read_all, state_of
from deploy.jobs.node_job.request import JobRequest

_POLL_SECONDS = 1.0


def await_turn(root: JobsRoot, folder: JobFolder, request: JobRequest) -> int:
    """Wait until the job `request.after` has ended; 0 if it is done, else the exit code of this job, which is over.

    The caller holds the job's `turn_lock`. Main thread only.
    """
    waiting = JobRecord(folder.id, request.job, JobState.WAITING, getpid(), begun=now())
    try:
        with interruptible():
            waiting.write(folder)
            notify(f"READY=1\nSTATUS={request.job} waits for {request.after}")
            before = _end_of(root, request.after)
    except KeyboardInterrupt:
        tell(f"{request.job}: interrupted before it began")
        code = ExitCode.CANCELLED
    else:
        if before is JobState.DONE:
            return ExitCode.DONE
        tell(f"{request.job}: not begun: {request.after}, which it was to follow, is {before}")
        code = ExitCode.CANCELLED if before is JobState.CANCELLED else ExitCode.FAILED
    replace(waiting, state=state_of(code), exit_code=code, ended=now()).write(folder)
    return code


def _end_of(root: JobsRoot, name: str) -> JobState:
    while True:
        found = [record.state for record in read_all(root) if record.id == name]
        if not found:
            raise ClusterError(
                f"{name}: expected a job to wait for, found none of that name: begin this one by itself with `fab job`"
            )
        if found[0].ended:
            return found[0]
        time.sleep(_POLL_SECONDS)
