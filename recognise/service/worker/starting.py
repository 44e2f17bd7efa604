"""Starts the process of a model: by itself, or through the nursery once this process is in a cage.

There it starts no program. Nor may an account that root became read a Python below /root.
"""

import json
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from core.exported.description import open_plain_file
from core.ground.errors import ClusterError, UsageError, reason_of

log = logging.getLogger(__name__)

READY = b"R"
CODE = struct.Struct("=i")
"""The exit code of a process of the nursery, as `subprocess` says it."""
LONGEST_REQUEST = 16 << 10
START_SECONDS = 60.0
_ROOT = Path(__file__).resolve().parents[3]
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TZ", "VIRTUAL_ENV")
"""Variables of the environment, which may hold secrets."""


class Forked:
    """A process that the nursery started. `life` says how it ends; closing it ends it."""

    def __init__(self, life: socket.socket) -> None:
        self._life = life
        self._lock = threading.Lock()
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return how it has ended, or None while it runs."""
        return self._heard(socket.MSG_DONTWAIT)

    def wait(self) -> int:
        """Return how it has ended, once it has."""
        code = self._heard(0)
        assert code is not None
        return code

    def kill(self) -> None:
        """Have the nursery kill it."""
        with suppress(OSError):
            self._life.shutdown(socket.SHUT_WR)

    def _heard(self, flags: int) -> int | None:
        with self._lock:
            if self._code is None:
                try:
                    packed_code = self._life.recv(CODE.size, flags)
                except BlockingIOError:
                    return None
                except OSError:
                    packed_code = b""
                if len(packed_code) == CODE.size:
                    (self._code,) = CODE.unpack(packed_code)
                else:  # the nursery has ended, and its processes with it
                    self._code = -signal.SIGKILL
                self._life.close()
            return self._code


Started = subprocess.Popen[bytes] | Forked


class Nursery:
    """The process that starts those of models for a service that is about to enter its cage."""

    def __init__(self) -> None:
        """Start it, and wait until it has given root up. Raises ClusterError."""
        self._channel, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_end:
            arguments = (str(child_end.fileno()), str(os.getpid()))
            self._process = _spawned(
                "recognise.service.worker.nursery", arguments, [child_end.fileno()]
            )
        try:
            self._channel.settimeout(START_SECONDS)
            greeting = self._channel.recv(len(READY))
            self._channel.settimeout(None)
        except OSError as problem:
            greeting = b""
            reason = reason_of(problem)
        else:
            reason = "it has ended"
        if greeting != READY:
            self.close()
            raise ClusterError(f"no process that starts models ({reason}): free some memory")

    def start(
        self, arguments: Mapping[str, object], files: Sequence[Path], channels: Sequence[int]
    ) -> Forked:
        """Start the process of a model. Raises OSError, and UsageError for what is no file."""
        with ExitStack() as until_sent:
            life, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            until_sent.enter_context(child_end)
            descriptors = [child_end.fileno()]
            started = Forked(life)
            for path in files:
                try:
                    descriptor = open_plain_file(path)
                except (OSError, ValueError) as problem:
                    raise UsageError(
                        f"{path}: expected what `fab export` writes, got {reason_of(problem)}:"
                        " export the run again"
                    ) from None
                until_sent.callback(os.close, descriptor)
                descriptors.append(descriptor)
            request = json.dumps(arguments).encode()
            try:
                socket.send_fds(self._channel, [request], [*descriptors, *channels])
            except ConnectionError:
                log.critical(
                    "the process that starts those of models has ended: so does the service"
                )
                os.kill(os.getpid(), signal.SIGTERM)
                raise
        return started

    def close(self) -> None:
        """End it, and the processes that it has started."""
        self._channel.close()
        self._process.wait()


_nurseries: list[Nursery] = []
"""The nursery of this process, once it has given up its own rights."""


def start_through(nursery: Nursery) -> None:
    """Have this process start all processes of models through the nursery from now on."""
    _nurseries[:] = [nursery]


def start(
    arguments: Mapping[str, object], files: Sequence[Path], channels: Sequence[int]
) -> Started:
    """Start the process of a model. `arguments` are those of `recognise.service.worker`'s `main`.

    `files` are those of the export. Raises OSError and UsageError.
    """
    for nursery in _nurseries:
        return nursery.start(arguments, files, channels)
    whole = {**arguments, "parent": os.getpid(), "channels": channels}
    return _spawned("recognise.service.worker", [json.dumps(whole)], channels)


def _spawned(
    module: str, arguments: Sequence[str], descriptors: Sequence[int]
) -> "subprocess.Popen[bytes]":
    environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    environment |= {
        "PYTHONPATH": str(_ROOT),
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "ORT_DISABLE_TELEMETRY": "1",
        # one thread, because rights are given up by a thread and its descendants
        "OPENBLAS_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "2",
    }
    return subprocess.Popen(
        (sys.executable, "-m", module, *arguments),
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        # a foreign model's runtime writes what it likes
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=descriptors,
        process_group=0,  # Ctrl-C reaches the service, which decides
    )
