"""Processes that a program leaves behind, found by the mark in their environment and not by their parent."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from cluster.programs.roster import MARK_VARIABLE

PATIENCE_SECONDS = 3.0
_PAUSE_SECONDS = 0.02


def marked(mark: str, proc: Path = Path("/proc")) -> list[int]:
    """Pids of this account's processes that carry the mark, zombies and this process itself apart."""
    wanted, own, found = f"{MARK_VARIABLE}={mark}".encode(), os.getpid(), []
    for entry in proc.iterdir():
        # A zombie's environment is empty; another account's cannot be read.
        with suppress(OSError):
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return [pid for pid in found if pid != own]


def end_marked(mark: str, patience_seconds: float = PATIENCE_SECONDS) -> int:
    """Kill every process that carries the mark, until there is none; how many there were."""
    end, seen = time.monotonic() + patience_seconds, set[int]()
    while pids := marked(mark):
        seen |= set(pids)
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            break
        time.sleep(_PAUSE_SECONDS)
    return len(seen)
