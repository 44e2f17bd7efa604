"""`run_job.py DEADLINE_SECONDS COMMAND...`: runs a command as `fab` runs a job."""

import os
import sys

from deploy.jobs.foreground_job import run_in_foreground

sys.exit(run_in_foreground(sys.argv[2:], os.environ, float(sys.argv[1])).exit_code)
