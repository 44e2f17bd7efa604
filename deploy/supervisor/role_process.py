"""One run of one role process, with its log and its readiness socket. It dies with its supervisor."""

import asyncio
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import Signals

from cluster.inventory.task import Task
from deploy.common.project import ROOT, die_with_parent, module_command
from deploy.common.state_folder import StateFolder
from deploy.render.units import MODULES
from deploy.supervisor.process_facts import ProcessIdentity, identify

LARGEST_BYTES = 8 * 2**20
"""A log beyond this is set aside as `<name>.log.1` when its process starts: an SD card is small."""

_LOOK_BACK_BYTES = 65536


def set_aside_if_large(log: Path) -> None:
    """Make way for a new log when this one is beyond LARGEST_BYTES; one earlier log is kept."""
    try:
        if log.stat().st_size > LARGEST_BYTES:
            log.replace(log.with_name(log.name + ".1"))
    except FileNotFoundError:
        return


def last_lines(log: Path, count: int, since: int = 0) -> list[str]:
    """Up to `count` last non-empty lines, looking at most 64 KiB back and not before byte `since`."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(since, end - _LOOK_BACK_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()][-count:]


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


def role_launches(
    tasks: Sequence[Task], inventory: Path, overrides: Sequence[str], folder: StateFolder, held: Sequence[str] = ()
) -> list[tuple[Task, LaunchPlan]]:
    """How to start each role that stays up of the inventory in the file `inventory`; the tasks named `held` wait."""
    settings = [word for override in overrides for word in ("--set", override)]
    return [
        (
            task,
            LaunchPlan(
                command=module_command(
                    MODULES[task.role], "--inventory", str(inventory), "--task", str(task.index), *settings
                ),
                environment=(("NOTIFY_SOCKET", str(folder.notify_socket)), ("PYTHONUNBUFFERED", "1")),
                folder=ROOT,
                log=folder.log(task.name),
                held=task.name in held,
            ),
        )
        for task in tasks
        if task.role in MODULES
    ]
