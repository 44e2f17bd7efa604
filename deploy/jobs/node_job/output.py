"""A job's own log, opened by the job itself: opened by systemd, root would write to whatever the account put there."""

import os
import sys

from deploy.jobs.node_job.folders import JobFolder

_LOG = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def say_into(folder: JobFolder) -> None:
    """From now on what this process and its children say goes to the end of the job's log. Raises OSError."""
    descriptor = os.open(folder.output, _LOG, 0o640)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
    finally:
        os.close(descriptor)
