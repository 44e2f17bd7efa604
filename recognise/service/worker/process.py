"""The processes of open models, as the service sees them: started, asked, killed.

A nursery starts each of them, because a service in its cage starts no program.

A request takes one of its channels, each of which has a model of its own. What takes longer than
the service computes ends the process: a runtime cannot be interrupted otherwise.
"""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.exported.description import NAME, Description, open_plain_file
from core.ground.errors import ClusterError, UsageError, reason_of
from recognise.service.limits import Limits, RequestError
from recognise.service.worker import (
    CODE,
    LOGITS,
    LONGEST_TEXT,
    READY,
    REFUSED,
    STARTED,
    WINDOWS,
    ChannelEndedError,
    receive,
    send,
)

Floats = NDArray[np.float32]

START_SECONDS = 60.0
END_SECONDS = 10.0
"""Time after which a process that does not end counts as one that hangs."""
_ROOT = Path(__file__).resolve().parents[3]
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TZ", "VIRTUAL_ENV")
"""Variables of the environment, which may hold secrets."""


class ForkedProcess:
    """A process that the nursery started. `life` says how it ends; closing it ends it."""

    def __init__(self, life: socket.socket) -> None:
        self._life = life
        self._lock = threading.Lock()
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return how it has ended, or None while it runs."""
        return self._heard(0.0)

    def wait(self) -> int:
        """Return how it has ended, once it has. One that hangs counts as killed."""
        code = self._heard(END_SECONDS)
        assert code is not None
        return code

    def kill(self) -> None:
        """Have the nursery kill it."""
        with suppress(OSError):
            self._life.shutdown(socket.SHUT_WR)

    def _heard(self, seconds: float) -> int | None:
        with self._lock:
            if self._code is None:
                try:
                    self._life.settimeout(seconds)
                    packed_code = self._life.recv(CODE.size)
                except BlockingIOError:
                    return None
                except OSError:
                    packed_code = b""
                if len(packed_code) == CODE.size:
                    (self._code,) = CODE.unpack(packed_code)
                else:  # the nursery has ended, and its processes with it, or hangs
                    self._code = -signal.SIGKILL
                self._life.close()
            return self._code


class Nursery:
    """The process that starts those of models, for a service in its cage or for a trial.

    Its owner must `close` it.
    """

    def __init__(self) -> None:
        """Start it, and wait until it has given root up. Raises ClusterError."""
        self._channel, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_end:
            try:
                self._process = _spawned(child_end.fileno())
            except OSError as problem:
                self._channel.close()
                raise ClusterError(
                    f"no process that starts models ({reason_of(problem)}): free some memory"
                ) from None
        try:
            self._channel.settimeout(START_SECONDS)
            greeting = self._channel.recv(len(STARTED))
        except OSError as problem:
            greeting = b""
            reason = reason_of(problem)
        else:
            reason = "it has ended"
        if greeting != STARTED:
            self.close()
            raise ClusterError(f"no process that starts models ({reason}): free some memory")

    def start(
        self, arguments: Mapping[str, object], files: Sequence[Path], channels: Sequence[int]
    ) -> ForkedProcess:
        """Start the process of a model.

        Raises OSError, UsageError for what is no file, and ClusterError once it has ended itself.
        """
        with ExitStack() as until_sent:
            export = []
            for path in files:
                try:
                    descriptor = open_plain_file(path)
                except (OSError, ValueError) as problem:
                    raise UsageError(
                        f"{path}: expected what `fab export` writes, got {reason_of(problem)}:"
                        " export the run again"
                    ) from None
                until_sent.callback(os.close, descriptor)
                export.append(descriptor)
            life, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            until_sent.enter_context(child_end)
            request = json.dumps(arguments).encode()
            try:
                socket.send_fds(self._channel, [request], [child_end.fileno(), *export, *channels])
            except (ConnectionError, TimeoutError) as problem:
                life.close()
                raise ClusterError(
                    f"the process that starts models has ended or hangs ({reason_of(problem)}): try"
                    " again"
                ) from None
            except OSError:
                life.close()
                raise
        return ForkedProcess(life)

    def fileno(self) -> int:
        """Return a descriptor that can be read once it has ended."""
        return self._channel.fileno()

    def close(self) -> None:
        """End it, and the processes that it has started. Kill it if it does not end in time."""
        self._channel.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(PermissionError):  # a cage may forbid it
                self._process.kill()
                self._process.wait()


def _spawned(channel: int) -> "subprocess.Popen[bytes]":
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
        (sys.executable, "-m", "recognise.service.worker", str(channel), str(os.getpid())),
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        # a foreign model's runtime writes what it likes
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[channel],
        process_group=0,  # Ctrl-C reaches the service, which decides
    )


class ModelLostError(RequestError):
    """The process of the model has ended; another one may answer soon."""

    def __init__(self, why: str) -> None:
        super().__init__(503, f"the model's process has ended ({why}): ask again later")
        self.why = why


class ModelProcess:
    """A process with the model of one export; its owner must `close` it."""

    def __init__(
        self, folder: Path, description: Description, limits: Limits, nursery: Nursery
    ) -> None:
        """Start it by the nursery, and wait until the model is open.

        Raises UsageError with the reason, and ClusterError where no process can be started.
        """
        self._description = description
        self._limits = limits
        self._idle: queue.SimpleQueue[socket.socket | None] = queue.SimpleQueue()
        """Idle channels, and None once the process has ended: who holds a channel closes it."""
        self._lock = threading.Lock()
        self._why = ""
        with ExitStack() as until_started:
            pairs = [socket.socketpair() for _ in range(limits.threads)]
            for _, child_end in pairs:
                until_started.enter_context(child_end)
            self._channels = [service_end for service_end, _ in pairs]
            try:
                self._process = self._started(
                    nursery, folder, [child_end for _, child_end in pairs]
                )
            except OSError as problem:
                self._close_channels()
                raise ClusterError(
                    f"{folder}: no process for the model ({problem.strerror}): free some memory"
                ) from None
            except (ClusterError, UsageError):
                self._close_channels()
                raise
        try:
            self._hear(self._channels[0], READY, 0, limits.open_seconds)
        except ModelLostError as problem:
            raise UsageError(f"{folder}: the model cannot be opened: {problem.why}") from None
        except BaseException:
            self.close()
            raise
        finally:
            for channel in self._channels:
                self._give(channel)

    @property
    def lost(self) -> str:
        """The reason why it has ended, or an empty text while it runs."""
        if not self._why and self._process.poll() is not None:
            self._end("")
        return self._why

    def logits(self, windows: Floats) -> Floats:
        """Return the logits, float32 (windows, classes); waits for an idle model.

        Raises UsageError where the model gives none, and ModelLostError where its process ends.
        """
        channel = self._idle.get()
        if channel is None:
            self._idle.put(None)
            raise ModelLostError(self._why)
        try:
            most = self._limits.batch_windows
            answers = [
                self._asked(channel, windows[at : at + most]) for at in range(0, len(windows), most)
            ]
            if len(answers) == 1:
                return answers[0]
            return np.concatenate(answers)
        finally:
            self._give(channel)

    def close(self) -> None:
        """Kill the process. Requests that wait for it learn so."""
        self._end("the service closed it")

    def _asked(self, channel: socket.socket, windows: Floats) -> Floats:
        classes = self._description.output.classes
        content = windows.astype("<f4", copy=False).tobytes()
        seconds = self._limits.compute_seconds
        try:
            channel.settimeout(seconds)
            send(channel, WINDOWS, content)
        except OSError:
            self._end("")
            raise ModelLostError(self._why) from None
        answer = self._hear(channel, LOGITS, 4 * len(windows) * classes, seconds)
        return np.frombuffer(answer, "<f4").reshape(len(windows), classes)

    def _hear(
        self, channel: socket.socket, expected_kind: bytes, size: int, seconds: float
    ) -> bytearray:
        """Return the bytes of an answer of this kind and size. Raises as `logits` does."""
        try:
            kind, content = receive(channel, max(size, LONGEST_TEXT), seconds)
        except TimeoutError:
            self._end(f"no answer within {seconds:g} s")
            raise ModelLostError(self._why) from None
        except (ChannelEndedError, OSError):
            self._end("")
            raise ModelLostError(self._why) from None
        if kind == REFUSED:
            raise UsageError(_printable(content))
        if kind != expected_kind or len(content) != size:
            self._end("it gave no answer of the right size")
            raise ModelLostError(self._why)
        return content

    def _started(
        self, nursery: Nursery, folder: Path, child_ends: Sequence[socket.socket]
    ) -> ForkedProcess:
        arguments = {
            "folder": str(folder.absolute()),
            "sha256": self._description.sha256,
            "memory_bytes": self._limits.model_bytes,
            "most_windows": self._limits.batch_windows,
        }
        files = (folder / NAME, folder / self._description.file)
        return nursery.start(arguments, files, [channel.fileno() for channel in child_ends])

    def _end(self, why: str) -> None:
        with self._lock:
            if self._why:
                return
            self._process.kill()
            code = self._process.wait()
            self._why = why or _ending(code)
            # wakes the threads that wait for an answer
            for channel in self._channels:
                with suppress(OSError):
                    channel.shutdown(socket.SHUT_RDWR)
        with suppress(queue.Empty):
            while idle := self._idle.get_nowait():
                idle.close()
        self._idle.put(None)

    def _give(self, channel: socket.socket) -> None:
        """Let another request have a channel."""
        with self._lock:
            if not self._why:
                self._idle.put(channel)
                return
        channel.close()

    def _close_channels(self) -> None:
        for channel in self._channels:
            channel.close()


def _ending(code: int) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"it ended with {code}"


def _printable(content: bytearray) -> str:
    """Return one line of text, whatever the process sent."""
    text = content.decode(errors="replace")
    return "".join(character if character.isprintable() else " " for character in text)
