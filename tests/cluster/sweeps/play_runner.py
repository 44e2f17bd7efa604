"""A runner on a node, with the played training.

Its arguments: PORT NAME FOLDER SECONDS PORTS...

SECONDS are those between two looks for changed files.
"""

import sys
from pathlib import Path

from cluster.programs import runner
from cluster.programs.frames import key_of_runner
from cluster.programs.runner import RunnerTask, run

port, name, folder, seconds, *ports = sys.argv[1:]
runner.SEND_SECONDS = float(seconds)
task = RunnerTask(
    ("127.0.0.1", int(port)),
    key_of_runner("secret", name),
    name,
    [*map(int, ports)],
    Path("x"),
    Path(folder) / "files",
    module="tests.cluster.sweeps.play_member",
)
run(task, 30.0)
