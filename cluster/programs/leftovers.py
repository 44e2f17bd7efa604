"""Processes that a program leaves behind: by the mark in their environment, and orphans."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from cluster.programs import orphans
from cluster.programs.roster import MARK_VARIABLE

PATIENCE_SECONDS = 3.0
_PAUSE_SECONDS = 0.02


def marked(mark: str, proc: Path = Path("/proc")) -> list[int]:
    """Return pids of this account's processes with the mark, without zombies and this process."""
    variable = f"{MARK_VARIABLE}={mark}".encode()
    own_pid = os.getpid()
    pids = []
    for entry in proc.iterdir():
        # A zombie's environment is empty; another account's cannot be read.
        with suppress(OSError):
            if entry.name.isdigit() and variable in (entry / "environ").read_bytes().split(b"\0"):
                pids.append(int(entry.name))
    return [pid for pid in pids if pid != own_pid]


def end_marked(mark: str, patience_seconds: float = PATIENCE_SECONDS) -> int:
    """Kill every process with the mark and every orphan until none is left; return how many."""
    end = time.monotonic() + patience_seconds
    killed = set[int]()
    while pids := {*marked(mark), *orphans.living()}:
        killed |= pids
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            break
        time.sleep(_PAUSE_SECONDS)
    return len(killed)
