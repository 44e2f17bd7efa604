"""`drive_node_job.py [--log] ROOT ID PLAYER...`: a played job, run as the unit runs a real one."""

import sys
from pathlib import Path

from core.ground.waiting import Backoff
from deploy.jobs.foreground_job import JobRestartPolicy
from deploy.jobs.node_job import run, write_into
from deploy.jobs.records import JobsRoot

log = sys.argv[1] == "--log"
words = sys.argv[1:]
if log:
    root, name, *player = words[1:]
else:
    root, name, *player = words
if log:
    write_into(JobsRoot(Path(root)).job(name))
policy = JobRestartPolicy(Backoff(first_seconds=0.01), limit=2)
sys.exit(run(JobsRoot(Path(root)), name, (sys.executable, *player), policy))
