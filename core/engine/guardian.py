"""The coordinator's end of the watchdog: it owns that process and hears of lost servers.

There is one a process, as TensorFlow has one context a process. `operation` and `losses` find it,
so that who calls a server need not have been given it.
"""

import contextlib
import ctypes
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 0.5
NEXT_WATCHDOG_SECONDS = 5.0
"""Between two starts of a watchdog that keeps dying."""
HUNG_SECONDS = 30.0
"""Silence after which a new watchdog, which writes a line a second, takes the place of this one."""
_PR_SET_PTRACER = 0x59616D61


@dataclass(frozen=True)
class Loss:
    """A server that the watchdog has cut off, `ps:0` at an address.

    An operation that never ended has no name.
    """

    name: str
    address: str
    seconds: int
    """Time for which it was silent, or the operation lasted."""


class Guardian:
    """The watchdog process, the thread that sends it heartbeats, and what it has reported."""

    def __init__(self, addresses: Mapping[str, tuple[str, int]]) -> None:
        """`addresses`: (host, port) of every server that may be guarded or fenced, by task name."""
        self.addresses = {
            name: (socket.gethostbyname(host), port) for name, (host, port) in addresses.items()
        }
        """These have numeric hosts."""
        self._lock = threading.Lock()
        self._standing: dict[tuple[str, str], str] = {}
        """The commands that a new watchdog has to hear, by verb and server; `begin` has none."""
        self._losses: list[Loss] = []
        self._unread = b""
        self._heard = time.monotonic()
        self._process = self._started()
        self._closed = threading.Event()
        self._quiet = False
        self._heartbeats = threading.Thread(
            target=self._send_heartbeats, name="heartbeat", daemon=True
        )
        self._heartbeats.start()
        _PRESENT[:] = [self]

    @staticmethod
    def _started() -> "subprocess.Popen[bytes]":
        root = Path(__file__).resolve().parents[2]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "core.engine.watchdog", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        os.set_blocking(process.stdin.fileno(), False)  # one that is stopped must not stop us
        os.set_blocking(process.stdout.fileno(), False)
        # Under yama's ptrace_scope=1 a child may take its parent's sockets only if the parent names
        # it.
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, process.pid, 0, 0, 0)
        return process

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            os.write(self._process.stdin.fileno(), line.encode() + b"\n")

    def _stand(self, verb: str, name: str) -> None:
        host, port = self.addresses[name]
        with self._lock:
            line = self._standing[verb, name] = f"{verb} {name} {host} {port}"
            self._send(line)

    def _end(self, verb: str, name: str, line: str) -> None:
        with self._lock:
            self._standing.pop((verb, name), None)
            self._send(line)

    def _send_heartbeats(self) -> None:
        started = time.monotonic()
        while not self._closed.wait(HEARTBEAT_SECONDS):
            if not self._quiet:
                self._send("heartbeat")
            self._read()
            if time.monotonic() - self._heard > HUNG_SECONDS:
                self._process.kill()
                self._process.wait()
            if (
                self._process.poll() is not None
                and time.monotonic() - started > NEXT_WATCHDOG_SECONDS
            ):
                started = time.monotonic()
                self._start_again()

    def _start_again(self) -> None:
        log.warning(
            "the watchdog process ended with status %s: started again", self._process.returncode
        )
        with self._lock:
            _close_pipes(self._process)
            self._unread = b""
            self._heard = time.monotonic()
            try:
                self._process = self._started()
            except OSError as problem:  # no memory or process is left; the next turn tries again
                log.warning("the watchdog process cannot be started: %s", problem.strerror)
                return
            for line in self._standing.values():
                self._send(line)

    def _read(self) -> None:
        with self._lock:
            assert self._process.stdout is not None
            with contextlib.suppress(OSError, ValueError):
                received = os.read(self._process.stdout.fileno(), 65536)
                *lines, self._unread = (self._unread + received).split(b"\n")
                self._heard = time.monotonic()
                self._losses += [self._loss_in(line) for line in lines if line != b"alive"]

    def _loss_in(self, line: bytes) -> Loss:
        *names, seconds = line.decode().split()[1:]
        name = "".join(names)
        host, port = self.addresses.get(name, ("", 0))
        return Loss(name, f"{host}:{port}", int(seconds))

    @property
    def losses(self) -> list[Loss]:
        """Servers that the watchdog has cut off from us for good."""
        self._read()
        return self._losses

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Send no heartbeats inside.

        A call that hangs without the interpreter lock would not stop them.

        The watchdog then takes a call that hangs for a frozen coordinator, and frees it.
        """
        self._quiet = True
        try:
            yield
        finally:
            self._quiet = False
            self._send("heartbeat")

    @contextmanager
    def operation(self) -> Iterator[None]:
        """Have the watchdog end an operation on the guarded servers that lasts too long."""
        with self._lock:
            self._standing["begin", ""] = "begin"
            self._send("begin")
        try:
            yield
        finally:
            self._end("begin", "", "end")

    def guard(self, name: str) -> None:
        """Have the watchdog probe this server all the time: it holds parameters."""
        self._stand("guard", name)

    def watch(self, name: str) -> None:
        """Have the watchdog probe this server when heartbeats are missing."""
        self._stand("watch", name)

    def forget(self, name: str) -> None:
        """Stop watching a server that has left the cluster."""
        self._end("watch", name, f"forget {name}")

    def fence(self, name: str) -> None:
        """Cut our connections to the server, and keep them cut until `unfence`."""
        self._stand("fence", name)

    def unfence(self, name: str) -> None:
        """Allow connections to the server again."""
        self._end("fence", name, f"unfence {name}")

    def cut(self, name: str) -> None:
        """Cut our connections to the server once, like a network that fails for a moment."""
        host, port = self.addresses[name]
        self._send(f"cut {host} {port}")

    def close(self) -> None:
        """End the watchdog process."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._heartbeats.join()
        if [self] == _PRESENT:
            _PRESENT.clear()
        _close_pipes(self._process)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _close_pipes(process: "subprocess.Popen[bytes]") -> None:
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()


_PRESENT: list[Guardian] = []


def losses() -> list[Loss]:
    """Return what this process has lost; nothing where it has no cluster."""
    if _PRESENT:
        return _PRESENT[0].losses
    return []


@contextmanager
def operation() -> Iterator[None]:
    """`Guardian.operation` where this process has a cluster."""
    with _PRESENT[0].operation() if _PRESENT else contextlib.nullcontext():
        yield
