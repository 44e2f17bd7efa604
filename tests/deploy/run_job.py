"""`run_job.py DEADLINE_SECONDS COMMAND...`: runs a command as `fab` runs a job."""

import sys

from core.ground.children import Child
from deploy.jobs.foreground_job import run_in_foreground

sys.exit(run_in_foreground(lambda: Child(sys.argv[2:]), float(sys.argv[1])).exit_code)
