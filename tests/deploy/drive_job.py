"""`drive_job.py INVENTORY JOB DELAY_SECONDS LIMIT PLAYER...`: runs a played job as `fab job` runs a real one."""

import sys

from cluster.errors import ClusterError
from cluster.inventory import load
from deploy.cluster.local_services import LocalServices
from deploy.jobs.job_restart import JobRestartPolicy

inventory, job, delay_seconds, limit, *player = sys.argv[1:]
policy = JobRestartPolicy(first_delay_seconds=float(delay_seconds), longest_delay_seconds=1000.0, limit=int(limit))
try:
    code = LocalServices(load(inventory), (), (sys.executable, *player), policy).run_job(job, ("--resume", "asked"))
except ClusterError as error:
    print(error, file=sys.stderr)
    code = error.exit_code
sys.exit(code)
