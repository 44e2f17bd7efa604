"""Those who wait, in threads of their own, until a worker has nothing to do."""

import threading
from collections.abc import Callable
from enum import Enum


class Drain(Enum):
    """What came of the wish to drain a worker."""

    DRAINED = "drained"
    UNKNOWN = "unknown"
    HOLDS_PARAMETERS = "holds parameters"
    LAST = "last"
    """Nobody else was there to go on."""
    BUSY = "busy"
    """It was still at its item when the time was up."""


class Drains:
    """Lets any thread ask for a drain and wait; the dispatcher's own thread says when it is done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, list[threading.Event]] = {}
        self._closed = False

    def wait(self, task: int, ask: Callable[[], None], seconds: float) -> bool:
        """Call `ask`, then wait until `done(task)`, or for so long; whether it was done."""
        done = threading.Event()
        with self._lock:
            if self._closed:
                return True
            self._waiting.setdefault(task, []).append(done)
        ask()
        if done.wait(seconds):
            return True
        with self._lock:
            others = self._waiting.get(task, [])
            if done in others:
                others.remove(done)
        return done.is_set()

    def done(self, task: int) -> None:
        """Whoever waits for this worker need not wait any longer."""
        with self._lock:
            for waiting in self._waiting.pop(task, []):
                waiting.set()

    def close(self) -> None:
        """No work will be given to anybody any more: all are drained."""
        with self._lock:
            self._closed = True
            for waiting in (one for several in self._waiting.values() for one in several):
                waiting.set()
            self._waiting.clear()
