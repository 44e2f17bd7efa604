"""`drive_node_job.py ROOT ID PLAYER...`: runs a played job as the unit on the coordinator's node runs a real one."""

import sys
from pathlib import Path

from deploy.job_restart import JobRestartPolicy
from deploy.node_job.folders import JobsRoot
from deploy.node_job.run import run

root, name, *player = sys.argv[1:]
policy = JobRestartPolicy(first_delay_seconds=0.01, limit=2)
sys.exit(run(JobsRoot(Path(root)), name, (sys.executable, *player), policy))
