"""A real supervisor over played roles, whose scripts are FOLDER/TASK.

`supervise.py FOLDER STATE READY_SECONDS TASK...`
"""

import sys
from pathlib import Path

from core.ground.errors import ClusterError
from core.ground.waiting import Backoff
from core.inventory import Task
from deploy.common.state_folder import StateFolder
from deploy.supervisor.__main__ import serve
from deploy.supervisor.processes import LaunchPlan, RestartPolicy
from deploy.supervisor.role import Deadlines

root, state, ready_seconds, *names = sys.argv[1:]
folder = StateFolder(Path(state))
launches = []
for name in names:
    role, index = name.split("-")
    assert role in ("ps", "worker")
    task = Task("ps" if role == "ps" else "worker", int(index), "here", "127.0.0.1", 1, 2)
    command = (
        sys.executable,
        str(Path(__file__).with_name("play_role.py")),
        str(Path(root) / name),
    )
    launches.append(LaunchPlan(task, command, folder.notify_socket, folder.log(task.name)))
try:
    serve(
        "played",
        launches,
        folder,
        Path(root) / "played.yaml",
        RestartPolicy(Backoff(first_seconds=0.05)),
        Deadlines(float(ready_seconds), stop_seconds=0.5),
    )
except ClusterError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
