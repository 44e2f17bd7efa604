"""Launching the supervisor of a local cluster, finding it, and ending it, also when it does not listen any more."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import ClusterError
from deploy.common.command_line import command
from deploy.common.file_lock import held_by
from deploy.common.project import ROOT, module_command
from deploy.common.state_folder import StateFolder
from deploy.supervisor import leftovers
from deploy.supervisor.control_client import ControlClient, NobodyListensError
from deploy.supervisor.role import Deadlines
from deploy.supervisor.role_process import last_lines, set_aside_if_large

_LAUNCH_DEADLINE_SECONDS = 60.0
"""From its launch to its first answer: it reads the inventory, and ends what an earlier one left behind."""
_STOP_DEADLINE_SECONDS = Deadlines().stop_seconds + 10.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class StopReport:
    """Whether a supervisor ran, what took SIGKILL to end, and the inventory that the cluster was started from."""

    ran: bool
    killed: tuple[str, ...]
    inventory: str | None = None


def answer_seconds(roles: int) -> float:
    """The longest wait for one answer: while it starts them, it is as busy as they are many (measured: 14 s for 65)."""
    return 10.0 + 0.5 * roles


class SupervisorHandle:
    """The supervisor whose files are in `folder`, whether it runs or not."""

    def __init__(self, cluster: str, folder: StateFolder, inventory: Path, roles: int = 0) -> None:
        """`inventory` is the file as the messages are to name it; `roles` is how many processes it keeps."""
        self._answer_seconds = answer_seconds(roles)
        self._stop_command = command("deploy stop", inventory)
        self._cluster = cluster
        self._folder = folder

    def client(self, deadline_seconds: float = 0.0) -> ControlClient:
        """A client for it, with the longest wait for one answer; as many roles need it if that is longer."""
        deadline_seconds = max(deadline_seconds, self._answer_seconds)
        return ControlClient(self._folder.control_socket, deadline_seconds, stop_command=self._stop_command)

    def launch(self, inventory: Path, overrides: Sequence[str], held: Sequence[str] = ()) -> None:
        """Detach a supervisor that does not start the roles `held`, and wait until it answers.

        Raises ClusterError with its last words if it does not answer.
        """
        self._folder.create()
        # One that is just being stopped still holds the lock.
        wait_until(lambda: self._answers() or held_by(self._folder.lock) is None, _STOP_DEADLINE_SECONDS)
        if self._answers():
            return
        settings = [word for override in overrides for word in ("--set", override)]
        settings += [word for name in held for word in ("--hold", name)]
        log = self._folder.log("supervisor")
        set_aside_if_large(log)
        with log.open("ab") as stream:
            begin = stream.tell()
            process = subprocess.Popen(
                module_command("deploy.supervisor", "--inventory", str(inventory), *settings),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                cwd=ROOT,
                start_new_session=True,
            )

        def answers_or_ended() -> bool:
            # One that lost the race against another `start` ends, and the winner answers soon.
            return self._answers() or (process.poll() is not None and held_by(self._folder.lock) is None)

        wait_until(answers_or_ended, _LAUNCH_DEADLINE_SECONDS)
        if not self._answers():
            words = last_lines(log, 1, since=begin)
            raise ClusterError(
                f"the supervisor of cluster {self._cluster} did not come up: "
                f"{words[0] if words else 'it said nothing'}; its log is {log}"
            )

    def stop(self) -> StopReport:
        """Have everything stopped, by force where asking does not do, and clear away what a crash left."""
        ran = held_by(self._folder.lock) is not None
        killed: list[str] = []
        inventory: str | None = None
        with contextlib.suppress(NobodyListensError):  # none, or one just starting or ending: the lock knows
            try:
                reply = self.client(_STOP_DEADLINE_SECONDS).ask("stop")
                killed += reply["killed"]
                inventory = reply.get("inventory")
            except NobodyListensError:
                raise
            except ClusterError:
                killed += self._kill()
        if not wait_until(lambda: held_by(self._folder.lock) is None, _STOP_DEADLINE_SECONDS):
            killed += self._kill()
        leftovers.clear_folder(self._folder)
        return StopReport(ran, tuple(killed), inventory)

    def _answers(self) -> bool:
        try:
            self.client().status()
        except NobodyListensError:
            return False
        return True

    def _kill(self) -> list[str]:
        """End one that does not answer; the kernel ends its roles with it."""
        pid = held_by(self._folder.lock)
        if pid is None:
            return []
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if not wait_until(lambda: held_by(self._folder.lock) is None, _STOP_DEADLINE_SECONDS):
            raise ClusterError(
                f"the supervisor of cluster {self._cluster} (pid {pid}) survives SIGKILL: it hangs in the kernel "
                "(a dead disk or network mount); reboot the machine"
            )
        return ["supervisor"]


def wait_until(condition: Callable[[], bool], deadline_seconds: float) -> bool:
    """Whether `condition` came to hold before the deadline."""
    deadline = time.monotonic() + deadline_seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
