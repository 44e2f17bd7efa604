"""A coordinator that ends otherwise each time.

`play_attempts.py JOURNAL ENDINGS JOB --inventory FILE [--resume RUN] [--of N [--then JOB]...]`

ENDINGS by commas, one a start: an exit code, `killed`, `killed-early`, before it has a run folder,
or `waits` for a SIGINT, and ends with 130; `empty` ends with 0 and leaves no result. With --of it
waits for `fab` before, and does the first job if there is another. Each start adds one line to
JOURNAL: its jobs, what it was to resume, and the roles' pids and state as it found them.
"""

import argparse
import json
import os
import signal
import sys
from pathlib import Path

from deploy.supervisor.control import ControlClient, NobodyListensError

parser = argparse.ArgumentParser()
parser.add_argument("journal", type=Path)
parser.add_argument("endings")
parser.add_argument("job")
parser.add_argument("--inventory", required=True)
parser.add_argument("--resume", nargs="?", const="newest")
parser.add_argument("--of", type=int)
parser.add_argument("--then", action="append", default=[])
given = parser.parse_args()

try:
    status = ControlClient(Path(os.environ.get("PSCLUSTER_SUPERVISOR", "/none"))).status()
    roles = {"state": status.summary, "pids": [role.pid for role in status.roles]}
except NobodyListensError:
    roles = {"state": "stopped", "pids": []}
with given.journal.open("a+") as journal:
    journal.seek(0)
    earlier = len(journal.readlines())
    journal.write(
        json.dumps({"jobs": [given.job, *given.then], "resume": given.resume, **roles}) + "\n"
    )
if given.of:
    assert os.read(0, 1)
    os.write(0, b"\n" * bool(given.then))
ending = given.endings.split(",")[earlier]
if ending != "killed-early" and "PSCLUSTER_RUN_FILE" in os.environ:
    Path(os.environ["PSCLUSTER_RUN_FILE"]).write_text(f"{given.journal.parent / 'runs' / 'one'}\n")
if ending == "waits":
    signal.signal(signal.SIGINT, lambda number, frame: sys.exit(130))
    Path(f"{given.journal}.waits").touch()
    while True:
        signal.pause()
if ending.startswith("killed"):
    os.kill(os.getpid(), signal.SIGKILL)
if ending == "empty":
    sys.exit(0)
if ending == "0":
    one = given.journal.parent / "runs" / "one"
    one.mkdir(parents=True, exist_ok=True)
    (one / "result.json").touch()
sys.exit(int(ending))
