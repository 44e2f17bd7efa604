"""One run of one role process: started with its log, its readiness socket and the promise to die with us."""

import asyncio
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from signal import Signals

from deploy.common.parent_death import die_with_parent
from deploy.supervisor.log_file import last_lines, set_aside_if_large
from deploy.supervisor.process_facts import ProcessIdentity, identify


@dataclass(frozen=True)
class LaunchPlan:
    """What to start: the command line, variables added to our environment, working folder, log file.

    A role that is `held` starts on the first request for a restart.
    """

    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    folder: Path
    log: Path
    held: bool = False


class RoleProcess:
    """A started child. Only the event loop's thread may start one: see `die_with_parent`."""

    def __init__(self, plan: LaunchPlan) -> None:
        """Start the process. Raises OSError when that is impossible."""
        set_aside_if_large(plan.log)
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

    def send_signal(self, number: Signals) -> bool:
        """Send it this signal; False when it has ended already."""
        self._process.send_signal(number)  # which looks whether it has ended
        return self._process.returncode is None

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
