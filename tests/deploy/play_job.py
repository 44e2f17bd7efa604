"""A small process that behaves like a job: `play_job.py FILE HOW`.

It writes its pid, then each SIGINT, into FILE.

result: ends with 130 after a SIGINT. deaf: goes on. exit CODE: ends at once. socket: writes
$PSCLUSTER_SUPERVISOR.
"""

import os
import signal
import sys
from pathlib import Path
from types import FrameType

file, how, *rest = sys.argv[1:]


def note(word: str) -> None:
    with Path(file).open("a") as journal:
        journal.write(word + "\n")


def interrupted(_number: int, _frame: FrameType | None) -> None:
    note("SIGINT")
    if how == "result":
        sys.exit(130)


if how == "socket":
    note(os.environ["PSCLUSTER_SUPERVISOR"])
    Path(file).with_name("result.json").touch()
    Path(os.environ["PSCLUSTER_RUN_FILE"]).write_text(str(Path(file).parent))
    sys.exit(0)
if how == "exit":
    sys.exit(int(rest[0]))
signal.signal(signal.SIGINT, interrupted)
note(str(os.getpid()))
while True:
    signal.pause()
