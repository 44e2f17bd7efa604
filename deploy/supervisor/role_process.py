"""One run of one role process: started with its log, its readiness socket and the promise to die with us."""

import asyncio
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.parent_death import die_with_parent
from deploy.supervisor.process_facts import ProcessIdentity, identify

LARGEST_LOG_BYTES = 8 * 2**20
"""A log beyond this is set aside as `<name>.log.1` when its role starts: an SD card is small."""


@dataclass(frozen=True)
class LaunchPlan:
    """What to start: the command line, variables added to our environment, working folder, log file."""

    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    folder: Path
    log: Path


class RoleProcess:
    """A started child. Only the event loop's thread may start one: see `die_with_parent`."""

    def __init__(self, plan: LaunchPlan) -> None:
        """Start the process. Raises OSError when that is impossible."""
        _rotate(plan.log)
        self._log = plan.log
        with plan.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                plan.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=plan.folder,
                env={**os.environ, **dict(plan.environment)},
                preexec_fn=die_with_parent(),
            )
        self._started = time.monotonic()
        self.ended = asyncio.Event()
        self.identity: ProcessIdentity | None = identify(self._process.pid)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def uptime_seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def return_code(self) -> int | None:
        """None while it runs, negative after a signal."""
        return self._process.returncode

    def reap(self) -> None:
        """Collect its exit status and set `ended` if it has ended; for the event loop's SIGCHLD handler."""
        if self._process.poll() is not None:
            self.ended.set()

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        self._process.terminate()

    def kill(self) -> None:
        """End it now (SIGKILL), stopped or not."""
        self._process.kill()

    def last_line(self) -> str:
        """The last non-empty line this run logged: a role that cannot start says why in one line."""
        lines = last_lines(self._log, 1, since=self._log_start)
        return lines[0] if lines else ""


def last_lines(path: Path, count: int, since: int = 0) -> Sequence[str]:
    """Up to `count` last non-empty lines of a file, looking at most 64 KiB back and not before byte `since`."""
    try:
        with path.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(since, end - 65536))
            text = log.read().decode("utf-8", errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()][-count:]


def _rotate(log: Path) -> None:
    try:
        if log.stat().st_size > LARGEST_LOG_BYTES:
            log.replace(log.with_name(log.name + ".1"))
    except FileNotFoundError:
        return
