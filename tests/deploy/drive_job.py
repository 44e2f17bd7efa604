"""`drive_job.py INVENTORY JOB DELAY_SECONDS PLAYER...`: runs a played job, or `JOB,JOB` ahead."""

import sys

from core.ground.errors import ClusterError
from core.ground.waiting import Backoff
from core.inventory import load
from deploy.cluster.cluster import local_cluster
from deploy.jobs.foreground_job import JobRestartPolicy
from deploy.jobs.services import ForegroundJobs, JobSpec
from deploy.supervisor.services import Supervised

inventory, job, delay_seconds, *player = sys.argv[1:]
policy = JobRestartPolicy(Backoff(float(delay_seconds), longest_seconds=1000.0), limit=5)
try:
    loaded = load(inventory)
    services = Supervised(loaded, ())
    cluster = local_cluster(loaded, (), services)
    jobs = ForegroundJobs(
        cluster, lambda: services.restart_in_place(()), (sys.executable, *player), policy
    )
    first, *others = job.split(",")
    flags = ("--resume", "asked")
    if not others:
        code = jobs.run(JobSpec(job, flags))
    else:
        with jobs.ahead((first, *others), flags):
            code = jobs.run_jobs((first, *others), flags)
except ClusterError as error:
    print(error, file=sys.stderr)
    code = error.exit_code
sys.exit(code)
