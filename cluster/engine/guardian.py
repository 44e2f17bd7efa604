"""The coordinator's end of the watchdog: starts it, beats, and passes on who is to be watched or fenced."""

import contextlib
import ctypes
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)

BEAT_SECONDS = 0.5
_PR_SET_PTRACER = 0x59616D61


class Guardian:
    """Owns the watchdog process and the thread that beats."""

    def __init__(self, addresses: dict[str, tuple[str, int]]) -> None:
        """`addresses`: task name to (host, port) of every server that may have to be fenced."""
        self.addresses = {name: (socket.gethostbyname(host), port) for name, (host, port) in addresses.items()}
        """The same with hosts as numbers."""
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
        self._beats = threading.Thread(target=self._beat, name="watchdog-beat", daemon=True)
        self._beats.start()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            os.write(self._process.stdin.fileno(), line.encode() + b"\n")

    def _beat(self) -> None:
        mourned = False
        while not self._closed.wait(BEAT_SECONDS):
            if not self._quiet:
                self._send("beat")
            if not mourned and self._process.poll() is not None:
                mourned = True
                log.error(
                    "the watchdog process ended with status %s: should a worker be stopped now, nobody frees the "
                    "coordinator; the job goes on",
                    self._process.returncode,
                )

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """No beats inside: for a call that may hang without holding the interpreter lock, which would let us beat on.

        To the watchdog a call that takes too long then looks like a frozen coordinator, and is helped as that is.
        """
        self._quiet = True
        try:
            yield
        finally:
            self._quiet = False
            self._send("beat")

    def watch(self, name: str) -> None:
        """Probe this server whenever the coordinator falls silent."""
        host, port = self.addresses[name]
        self._send(f"watch {name} {host} {port}")

    def forget(self, name: str) -> None:
        """The server is no longer part of the cluster."""
        self._send(f"forget {name}")

    def fence(self, name: str) -> None:
        """Cut our connections to the server, and keep them cut until `unfence`."""
        host, port = self.addresses[name]
        self._send(f"fence {name} {host} {port}")

    def unfence(self, name: str) -> None:
        """Let us connect to the server again."""
        self._send(f"unfence {name}")

    def cut(self, name: str) -> None:
        """Cut our connections to the server once, as a network does that fails for a moment."""
        host, port = self.addresses[name]
        self._send(f"cut {host} {port}")

    def close(self) -> None:
        """End the watchdog process."""
        self._closed.set()
        self._beats.join()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
