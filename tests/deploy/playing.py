"""Played clusters: a real supervisor over small processes that behave as a script says."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from core.control.own_state import state_of
from deploy.cluster.services import ClusterStatus, RoleState
from deploy.common.project import environment_for_any_folder
from deploy.common.state_folder import StateFolder
from deploy.supervisor.control import ControlClient, NobodyListensError

PATIENCE_SECONDS = 60.0


def eventually(
    condition: Callable[[], bool], what: str, patience_seconds: float = PATIENCE_SECONDS
) -> None:
    """Poll until `condition` holds; the two noisy cores of a test machine get a minute."""
    deadline = time.monotonic() + patience_seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {patience_seconds:.0f} s"
        time.sleep(0.02)


def gone(pid: int) -> bool:
    """Whether no process with this pid runs (a zombie does not run)."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class PlayedCluster:
    """Scripts of the roles, the supervisor process, and a client for it."""

    def __init__(self, root: Path, state: Path | None = None) -> None:
        self.root = root
        self.folder = StateFolder(state or state_of(root, "played"))
        self.client = ControlClient(self.folder.control_socket, deadline_seconds=PATIENCE_SECONDS)
        self.process: subprocess.Popen[bytes] | None = None
        self.pids: set[int] = set()

    def script(self, **roles: str) -> None:
        """How each role behaves at its next start: `ps_0="ready"`."""
        for name, how in roles.items():
            (self.root / name.replace("_", "-")).write_text(how)

    def plays(self, **roles: str) -> ClusterStatus:
        """Start a supervisor over roles that behave so, and wait until all of them are ready."""
        self.script(**roles)
        self.start(*(name.replace("_", "-") for name in roles))
        return self.until_running()

    @property
    def said(self) -> str:
        """What the supervisor has written."""
        return (self.root / "supervisor.out").read_text()

    def start(self, *tasks: str, ready_seconds: float = 60.0) -> subprocess.Popen[bytes]:
        """Start a supervisor and wait until it answers."""
        self.process = process = self.launch(*tasks, ready_seconds=ready_seconds)

        def answers() -> bool:
            assert process.poll() is None, self.said
            with contextlib.suppress(NobodyListensError):
                return bool(self.client.status().roles)
            return False

        eventually(answers, "an answer of the supervisor")
        return process

    def launch(self, *tasks: str, ready_seconds: float = 60.0) -> subprocess.Popen[bytes]:
        """Start a supervisor process and leave it to itself."""
        script = Path(__file__).with_name("supervise.py")
        words = map(str, (script, self.root, self.folder.path, ready_seconds, *tasks))
        with (self.root / "supervisor.out").open("ab") as out:
            return subprocess.Popen(
                [sys.executable, *words],
                stdout=out,
                stderr=out,
                env=environment_for_any_folder(),
                start_new_session=True,
            )

    def until(self, condition: Callable[[ClusterStatus], bool], what: str) -> ClusterStatus:
        """Follow the supervisor's own stream of changes until `condition` holds."""
        with contextlib.closing(self.client.watch()) as changes:
            for status in changes:
                self.pids.update(role.pid for role in status.roles if role.pid is not None)
                if condition(status):
                    return status
        raise AssertionError(f"{what} did not happen")

    def until_state(self, state: RoleState) -> None:
        """Poll until the first role is in this state: a stopped process is no news."""
        eventually(lambda: self.client.status().roles[0].state is state, f"the state {state}")

    def until_running(self) -> ClusterStatus:
        return self.until(lambda status: status.running, "readiness of every role")

    def end(self) -> None:
        """End the supervisor and see that nothing of it is left."""
        if self.process is not None:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGCONT)
                self.process.terminate()
            self.process.wait(PATIENCE_SECONDS)
        left = [pid for pid in self.pids if not gone(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, f"role processes {left} outlived their supervisor"
