"""A small process that behaves like a job: `play_job.py FILE HOW`.

It writes its pid, then each SIGINT, into FILE.

result: ends with 130 after a SIGINT. deaf: goes on. exit CODE: ends at once.
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


if how == "exit":
    sys.exit(int(rest[0]))
signal.signal(signal.SIGINT, interrupted)
note(str(os.getpid()))
while True:
    signal.pause()
