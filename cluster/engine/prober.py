"""The thread that asks servers for a sign of life: all of them at the same time, so that dead ones delay nobody."""

import contextlib
import queue
import selectors
import socket
import threading
from collections.abc import Callable
from itertools import count

from cluster.server.probe import Probes

_IDLE_SECONDS = 60.0


class Prober:
    """Asks, and tells each result from its own thread."""

    def __init__(self) -> None:
        self._questions: queue.SimpleQueue[tuple[tuple[str, int], float, Callable[[bool], None]]] = queue.SimpleQueue()
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="prober", daemon=True)
        self._thread.start()

    def ask(self, address: tuple[str, int], seconds: float, tell: Callable[[bool], None]) -> None:
        """Call `tell` with whether the server at this (numeric host, port) answers within so many seconds."""
        self._questions.put((address, seconds, tell))
        self._wake()

    def close(self) -> None:
        """End the thread; what is not answered by then never will be."""
        if not self._closed.is_set():
            self._closed.set()
            self._wake()
            self._thread.join()
            self._ours.close()
            self._theirs.close()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # so much has been written that it wakes anyway
            self._ours.send(b"\0")

    def _serve(self) -> None:
        numbers = count()
        telling: dict[int, Callable[[bool], None]] = {}
        with Probes[int]() as probes:
            probes.selector.register(self._theirs, selectors.EVENT_READ)
            while not self._closed.is_set():
                for number, answered in probes.wait(_IDLE_SECONDS):
                    telling.pop(number)(answered)
                try:
                    self._theirs.recv(4096)
                except BlockingIOError:
                    continue
                while not self._questions.empty():
                    (host, port), seconds, tell = self._questions.get()
                    number = next(numbers)
                    telling[number] = tell
                    probes.ask(number, host, port, seconds)
