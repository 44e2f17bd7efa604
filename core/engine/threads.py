"""The threads that wait for the network in the dispatcher's place: one a worker, and a prober."""

import contextlib
import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count

from core.engine.chaos import Fault, Strike
from core.engine.lost import first_line
from core.engine.messages import Event, Failed, Item, Replied
from core.engine.runtime import Runtime, lacks_file, transient
from core.ground.lazy import tf
from core.server.probe import Probes

_IDLE_SECONDS = 60.0


class WorkerThread:
    """The thread that calls one worker, one call after the other.

    Each call ends in Replied or Failed on `events`.
    """

    def __init__(
        self,
        runtime: Runtime,
        task: int,
        events: "queue.SimpleQueue[Event]",
        injected: Callable[[Strike], None] = lambda _: None,
    ) -> None:
        """`injected` gets each fault of a delivery after it was injected."""
        self._injected, self._closed = injected, threading.Event()
        self._runtime = runtime
        self._task = task
        self._events = events
        self._work: queue.SimpleQueue[tuple[Item, int, Strike | None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=f"worker-{task}", daemon=True)
        self._thread.start()

    def call(self, item: Item, attempt: int, strike: Strike | None = None) -> None:
        """Queue this call, with this fault in its delivery."""
        self._work.put((item, attempt, strike))

    def close(self) -> None:
        """End the thread after its present call, and wait for nothing."""
        self._closed.set()
        self._work.put(None)

    def join(self, seconds: float) -> None:
        """Wait at most this long for the end of the thread."""
        self._thread.join(seconds)

    def _serve(self) -> None:
        with self._runtime.on_worker(self._task):
            while (work := self._work.get()) is not None:
                item, attempt, strike = work
                event = self._answer(item, attempt)
                self._events.put(event if strike is None else self._struck(strike, event, item))

    def _struck(self, strike: Strike, event: Replied | Failed, item: Item) -> Replied | Failed:
        """The event with its fault injected; a call that failed by itself stays as it is."""
        if isinstance(event, Failed):
            return event
        self._injected(strike)
        if strike.fault is Fault.DROP_REPLY:
            return Failed(self._task, event.attempt, "chaos: its reply was dropped")
        if strike.fault is Fault.LATE:
            self._closed.wait(strike.lasts_seconds)
            return replace(event, seconds=event.seconds + strike.lasts_seconds)
        second = self._answer(item, event.attempt)
        if isinstance(second, Replied):
            return event
        return second

    def _answer(self, item: Item, attempt: int) -> Replied | Failed:
        begin = time.monotonic()
        try:
            value = item.function.answer(*item.arguments)
        except tf.errors.OpError as problem:
            lacks = lacks_file(problem)
            return Failed(self._task, attempt, first_line(problem), transient(problem), lacks)
        except Exception as problem:
            # A defect of ours, not of the network: the user must see it.
            return Failed(
                self._task, attempt, f"{type(problem).__name__}: {problem}", transient=False
            )
        return Replied(self._task, attempt, value, time.monotonic() - begin)


class Prober:
    """The thread that probes servers, all at once, so that a dead one delays no other."""

    def __init__(self) -> None:
        self._questions: queue.SimpleQueue[
            tuple[tuple[str, int], float, Callable[[bool], None]]
        ] = queue.SimpleQueue()
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="prober", daemon=True)
        self._thread.start()

    def ask(self, address: tuple[str, int], seconds: float, report: Callable[[bool], None]) -> None:
        """Call `report` with whether the server at (numeric host, port) answers in time."""
        self._questions.put((address, seconds, report))
        self._wake()

    def close(self) -> None:
        """End the thread; open questions get no answer."""
        if not self._closed.is_set():
            self._closed.set()
            self._wake()
            self._thread.join()
            self._ours.close()
            self._theirs.close()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # the buffer is full: it wakes anyway
            self._ours.send(b"\0")

    def _serve(self) -> None:
        numbers = count()
        reports: dict[int, Callable[[bool], None]] = {}
        with contextlib.closing(Probes[int]()) as probes:
            probes.selector.register(self._theirs, selectors.EVENT_READ)
            while not self._closed.is_set():
                for number, answered in probes.wait(_IDLE_SECONDS):
                    reports.pop(number)(answered)
                try:
                    self._theirs.recv(4096)
                except BlockingIOError:
                    continue
                while not self._questions.empty():
                    (host, port), seconds, report = self._questions.get()
                    number = next(numbers)
                    reports[number] = report
                    probes.ask(number, host, port, seconds)
