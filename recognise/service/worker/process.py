"""The process of one open model, as the service sees it: started, asked, killed.

A request takes one of its channels, each of which has a model of its own. What takes longer than
the service computes ends the process: a runtime cannot be interrupted otherwise.
"""

import queue
import signal
import socket
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.exported.description import NAME, Description
from core.ground.errors import ClusterError, UsageError
from recognise.service.limits import Limits, RequestError
from recognise.service.worker.frames import (
    LOGITS,
    LONGEST_TEXT,
    READY,
    REFUSED,
    WINDOWS,
    ChannelEndedError,
    receive,
    send,
)
from recognise.service.worker.starting import Started, start

Floats = NDArray[np.float32]


class ModelLostError(RequestError):
    """The process of the model has ended; another one may answer soon."""

    def __init__(self, why: str) -> None:
        super().__init__(503, f"the model's process has ended ({why}): ask again later")
        self.why = why


class ModelProcess:
    """A process with the model of one export; its owner must `close` it."""

    def __init__(self, folder: Path, description: Description, limits: Limits) -> None:
        """Start it, and wait until the model is open.

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
                self._process = self._started(folder, [child_end for _, child_end in pairs])
            except OSError as problem:
                self._close_channels()
                raise ClusterError(
                    f"{folder}: no process for the model ({problem.strerror}): free some memory"
                ) from None
            except UsageError:
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

    def _started(self, folder: Path, child_ends: list[socket.socket]) -> Started:
        arguments = {
            "folder": str(folder.absolute()),
            "sha256": self._description.sha256,
            "memory_bytes": self._limits.model_bytes,
            "most_windows": self._limits.batch_windows,
        }
        files = (folder / NAME, folder / self._description.file)
        return start(arguments, files, [channel.fileno() for channel in child_ends])

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
