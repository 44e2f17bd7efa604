"""The watchdog: a process of its own that frees the coordinator when the coordinator is frozen.

A stopped worker (SIGSTOP, a hung SD card) keeps its connections open. A coordinator that waits for it inside TensorFlow
holds the interpreter lock, so none of its own Python threads or timers can help. This process imports no TensorFlow. It
shuts the coordinator's sockets to that worker from outside (pidfd_getfd, Linux 5.6), again and again while the fence
stands, so that gRPC's reconnect (20 s a try) fails at once as well. Measured: the blocked call ends 0.1 s after the
cut; without the second cut it takes 20 s. `Guardian` is the coordinator's end.

It reads commands on standard input, one a line:

    heartbeat                   the coordinator is alive
    watch NAME HOST PORT        probe this server when the heartbeats stop
    forget NAME
    fence NAME HOST PORT        cut the coordinator's sockets to it until `unfence NAME`
    unfence NAME
    cut HOST PORT               cut the coordinator's sockets to this server once (injected faults)

and ends with its input. After `SILENCE_SECONDS` without a heartbeat it fences the watched servers that do not answer a
probe. After `PATIENCE_SECONDS` it kills the coordinator, so that a supervisor can start it again.
"""

import contextlib
import ctypes
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.control.lines import ask_supervisor
from cluster.logs.terminal import say
from cluster.server.probe import answering
from cluster.server.sockets import cut

SILENCE_SECONDS = 3.0
PATIENCE_SECONDS = 90.0
CUT_INTERVAL_SECONDS = 0.05
PROBE_SECONDS = 2.0
SUPERVISOR_SECONDS = 1.0

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 0.5
_PR_SET_PTRACER = 0x59616D61


def kill_through_supervisor(name: str) -> None:
    """Have the supervisor, if there is one, kill the role: a dead process is the surest fence."""
    path = os.environ.get("PSCLUSTER_SUPERVISOR")
    if not path:
        return
    with contextlib.suppress(OSError, ValueError):
        ask_supervisor(Path(path), SUPERVISOR_SECONDS, "kill", task=name)


class Watchdog:
    """The watchdog process: the servers to watch, and those to keep cut off."""

    def __init__(self, coordinator: int, silence: float = SILENCE_SECONDS, patience: float = PATIENCE_SECONDS) -> None:
        self.coordinator = coordinator
        self.silence, self.patience = silence, patience
        self.watched: dict[str, tuple[str, int]] = {}
        self.fenced: dict[str, tuple[str, int]] = {}
        self.last_heartbeat = time.monotonic()
        self.powerless = False

    def command(self, line: str) -> None:
        """Carry out one line of input."""
        match line.split():
            case ["heartbeat"]:
                # Our fence stays: calls that still wait for the stopped worker would freeze the coordinator again.
                self.last_heartbeat = time.monotonic()
            case ["watch", name, host, port]:
                self.watched[name] = (host, int(port))
            case ["forget", name]:
                self.watched.pop(name, None)
            case ["fence", name, host, port]:
                self.fence({name: (host, int(port))})
            case ["unfence", name]:
                self.fenced.pop(name, None)
            case ["cut", host, port]:
                self.cut({(host, int(port))})
            case _:
                say(f"watchdog: cannot read the command {line!r}", error=True)

    def fence(self, found: dict[str, tuple[str, int]]) -> None:
        """Cut these servers off now, and again whenever the coordinator reconnects."""
        new = {name: address for name, address in found.items() if name not in self.fenced}
        if new:
            self.fenced.update(new)
            self.hold()
            for name in new:  # a supervisor answers only once the process is dead
                threading.Thread(target=kill_through_supervisor, args=(name,), daemon=True).start()

    def hold(self) -> None:
        """Cut all sockets of the coordinator to fenced servers."""
        if self.fenced:
            self.cut(set(self.fenced.values()))

    def cut(self, addresses: set[tuple[str, int]]) -> None:
        """Cut the coordinator's sockets to these addresses; where the kernel forbids it, report that once."""
        if self.powerless:
            return
        try:
            cut(self.coordinator, addresses)
        except ProcessLookupError:
            return  # the coordinator has ended, and so will our input
        except OSError as problem:
            self.powerless = True
            say(
                f"watchdog: this kernel does not let us cut the coordinator's sockets ({problem.strerror}): from now "
                "on a stopped worker is only killed, where there is a supervisor to do it",
                error=True,
            )

    def look(self) -> None:
        """Check the time since the last heartbeat, and act on it."""
        silent = time.monotonic() - self.last_heartbeat
        if silent > self.patience:
            say(f"watchdog: no heartbeat from the coordinator for {silent:.0f} s: killing it", error=True)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.coordinator, signal.SIGKILL)
            raise SystemExit(1)
        if silent > self.silence:
            asked = {name: address for name, address in self.watched.items() if name not in self.fenced}
            alive = answering(asked, PROBE_SECONDS)
            dead = {name: address for name, address in asked.items() if name not in alive}
            for name, (host, port) in dead.items():
                say(
                    f"watchdog: no heartbeat from the coordinator for {silent:.1f} s and {name} ({host}:{port}) does "
                    "not answer: cutting it off",
                    error=True,
                )
            self.fence(dead)


def main(arguments: list[str]) -> None:
    """Watch the process whose id is the first argument until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the coordinator, which needs us until it has stopped
    watchdog = Watchdog(int(arguments[0]), *(float(argument) for argument in arguments[1:]))
    source, rest = sys.stdin.fileno(), b""
    while True:
        wait = CUT_INTERVAL_SECONDS if watchdog.fenced else 1.0
        if select.select([source], [], [], wait)[0]:
            received = os.read(source, 65536)
            if not received:
                return
            *lines, rest = (rest + received).split(b"\n")
            for line in lines:
                watchdog.command(line.decode())
        watchdog.hold()
        watchdog.look()


class Guardian:
    """The coordinator's end: it owns the watchdog process and the thread that sends heartbeats."""

    def __init__(self, addresses: dict[str, tuple[str, int]]) -> None:
        """`addresses`: (host, port) of every server that may be fenced, by task name."""
        self.addresses = {name: (socket.gethostbyname(host), port) for name, (host, port) in addresses.items()}
        """The same with numeric hosts."""
        root = Path(__file__).resolve().parents[2]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cluster.engine.watchdog", str(os.getpid())],
            stdin=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        # Under yama's ptrace_scope=1 a child may take its parent's sockets only if the parent names it.
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, self._process.pid, 0, 0, 0)
        self._closed = threading.Event()
        self._quiet = False
        self._heartbeats = threading.Thread(target=self._send_heartbeats, name="heartbeat", daemon=True)
        self._heartbeats.start()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            os.write(self._process.stdin.fileno(), line.encode() + b"\n")

    def _send_heartbeats(self) -> None:
        mourned = False
        while not self._closed.wait(HEARTBEAT_SECONDS):
            if not self._quiet:
                self._send("heartbeat")
            if not mourned and self._process.poll() is not None:
                mourned = True
                log.error(
                    "the watchdog process ended with status %s: the job continues, but a worker that stops now may "
                    "freeze the coordinator",
                    self._process.returncode,
                )

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Send no heartbeats inside: a call that hangs without the interpreter lock would not stop them.

        The watchdog then takes a call that hangs for a frozen coordinator, and frees it.
        """
        self._quiet = True
        try:
            yield
        finally:
            self._quiet = False
            self._send("heartbeat")

    def watch(self, name: str) -> None:
        """Have the watchdog probe this server when heartbeats are missing."""
        host, port = self.addresses[name]
        self._send(f"watch {name} {host} {port}")

    def forget(self, name: str) -> None:
        """Stop watching a server that has left the cluster."""
        self._send(f"forget {name}")

    def fence(self, name: str) -> None:
        """Cut our connections to the server, and keep them cut until `unfence`."""
        host, port = self.addresses[name]
        self._send(f"fence {name} {host} {port}")

    def unfence(self, name: str) -> None:
        """Allow connections to the server again."""
        self._send(f"unfence {name}")

    def cut(self, name: str) -> None:
        """Cut our connections to the server once, like a network that fails for a moment."""
        host, port = self.addresses[name]
        self._send(f"cut {host} {port}")

    def close(self) -> None:
        """End the watchdog process."""
        self._closed.set()
        self._heartbeats.join()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
