"""A runner on a node, with the played training: `python -m tests.sweeps.play_runner PORT NAME FOLDER SECONDS PORTS...`.

SECONDS are those between two looks for changed files.
"""

import sys
from pathlib import Path

from cluster.programs import runner
from cluster.programs.runner import RunnerTask, run

port, name, folder, seconds, *ports = sys.argv[1:]
runner.SEND_SECONDS = float(seconds)
files = Path(folder) / "files"
run(
    RunnerTask(
        ("127.0.0.1", int(port)), "secret", name, [int(one) for one in ports], Path("x"), files,
        module="tests.sweeps.play_member",
    ),
    30.0,
)  # fmt: skip
