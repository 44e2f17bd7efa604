"""The threads that wait for the network in the dispatcher's place: one a worker, and a prober.

They also inject the faults that `Chaos` chooses: through supervisor, watchdog or their own call.
"""

import contextlib
import logging
import os
import queue
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from core.control.client import ask_supervisor
from core.engine.changes import first_line
from core.engine.chaos import DELIVERY, Chaos, Fault, Strike
from core.engine.runtime import Runtime, lacks_file, transient
from core.engine.workers import Event, Failed, Item, Replied
from core.ground.lazy import tf
from core.server.sockets import Probes

log = logging.getLogger(__name__)

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
        self._injected = injected
        self._closed = threading.Event()
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


SUPERVISOR_SECONDS = 5.0


class Record(Protocol):
    """The record of injected faults. Any thread may call it."""

    def injected(self, strike: Strike) -> None:
        """Record this fault: after it was injected, or before a fault that ends this process."""

    def deadly(self, seconds: float) -> int:
        """Count the deadly faults of the last `seconds`, also under earlier coordinators."""


class Saboteur:
    """Injects faults into one coordinator's run.

    A context manager: at its end no process stays stopped.
    """

    def __init__(self, chaos: Chaos, record: Record, supervisor: Path | None) -> None:
        """`supervisor`: its socket; None if no fault of the plan needs one."""
        self._chaos = chaos
        self._record = record
        self._supervisor = supervisor
        self._lock = threading.Lock()
        self._closed = False
        self._timers: set[threading.Timer] = set()
        self._stopped: set[str] = set()

    def __enter__(self) -> "Saboteur":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def dispatched(
        self, task: int, attempts: int, live: Collection[int], cut: Callable[[str], None]
    ) -> Strike | None:
        """Return the fault, if any, of an item's delivery to worker `task`.

        It is delivered for the `attempts`-th time.

        A thread injects any other fault; `cut` takes a worker's name.
        """
        strike = self._chaos.strike(task, attempts, live, time.monotonic(), self._record.deadly)
        if strike is None or strike.fault in DELIVERY:
            return strike
        self._later(strike.delay_seconds, self._process_fault, strike, cut)
        return None

    def injected(self, strike: Strike) -> None:
        """Log and record an injected fault."""
        if strike.fault in (Fault.STOP_WORKER, Fault.LATE):
            lasting = f" for {strike.lasts_seconds:.1f} s"
        else:
            lasting = ""
        log.warning(
            "chaos: %s, %s%s (dispatch %d)", strike.fault, strike.target, lasting, strike.dispatch
        )
        self._record.injected(strike)

    def close(self) -> None:
        """Inject no more faults, and continue every stopped process."""
        with self._lock:
            self._closed = True
            timers = list(self._timers)
            stopped = sorted(self._stopped)
        for timer in timers:
            timer.cancel()
        for timer in timers:
            timer.join(SUPERVISOR_SECONDS)
        for name in stopped:
            self._let_go_on(name)

    def _later(self, seconds: float, action: Callable[..., None], *arguments: Any) -> None:
        def act() -> None:
            try:
                action(*arguments)
            finally:
                with self._lock:
                    self._timers.discard(timer)

        timer = threading.Timer(seconds, act)
        timer.daemon = True
        with self._lock:
            if self._closed:
                return
            self._timers.add(timer)
            timer.start()

    def _process_fault(self, strike: Strike, cut: Callable[[str], None]) -> None:
        match strike.fault:
            case Fault.CUT_WORKER:
                cut(strike.target)
                self.injected(strike)
            case Fault.KILL_COORDINATOR:
                self.injected(strike)
                os.kill(os.getpid(), signal.SIGKILL)
            case Fault.STOP_WORKER:
                with self._lock:
                    if self._closed:
                        return
                    self._stopped.add(strike.target)
                if self._obeyed("signal", task=strike.target, signal=signal.SIGSTOP.name):
                    self.injected(strike)
                    self._later(strike.lasts_seconds, self._let_go_on, strike.target)
            case Fault.CUT_PS:
                if self._obeyed("cut", task=strike.target, peer=f"ps:{strike.server}"):
                    self.injected(strike)
            case _:
                if self._obeyed("kill", task=strike.target, reason="chaos"):
                    self.injected(strike)

    def _let_go_on(self, name: str) -> None:
        # If it was fenced and killed meanwhile, the signal does not harm its successor.
        self._obeyed("signal", task=name, signal=signal.SIGCONT.name)
        with self._lock:
            self._stopped.discard(name)

    def _obeyed(self, verb: str, **request: str) -> bool:
        """Whether the supervisor did this to a process."""
        assert self._supervisor is not None  # ChaosPlan.refuse
        try:
            reply = ask_supervisor(self._supervisor, SUPERVISOR_SECONDS, verb, **request)
        except (OSError, ValueError) as problem:
            log.warning(
                "chaos: the supervisor could not be asked to %s %s: %s",
                verb,
                request["task"],
                problem,
            )
            return False
        if not reply.get("pid"):
            log.info(
                "chaos: %s %s: nothing to do it to: %s",
                verb,
                request["task"],
                reply.get("error", "no process"),
            )
        return bool(reply.get("pid"))
