"""`drive_job.py INVENTORY JOURNAL HOW`: runs a played job as `fab job` runs a real one."""

import sys
from pathlib import Path

from cluster.errors import ClusterError
from cluster.inventory import load
from deploy.local_services import LocalServices

inventory, journal, *how = sys.argv[1:]


player = (sys.executable, str(Path(__file__).with_name("play_job.py")), journal, *how)
try:
    code = LocalServices(load(inventory), (), player).run_job("pi", ())
except ClusterError as error:
    print(error, file=sys.stderr)
    code = error.exit_code
sys.exit(code)
