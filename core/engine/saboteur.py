"""Injects the faults that `Chaos` chooses: through supervisor, watchdog or the call's thread."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Protocol

from core.control.client import ask_supervisor
from core.engine.chaos import DELIVERY, Chaos, Fault, Strike

log = logging.getLogger(__name__)

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
                if self._asked("signal", task=strike.target, signal=signal.SIGSTOP.name):
                    self.injected(strike)
                    self._later(strike.lasts_seconds, self._let_go_on, strike.target)
            case Fault.CUT_PS:
                if self._asked("cut", task=strike.target, peer=f"ps:{strike.server}"):
                    self.injected(strike)
            case _:
                if self._asked("kill", task=strike.target, reason="chaos"):
                    self.injected(strike)

    def _let_go_on(self, name: str) -> None:
        # If it was fenced and killed meanwhile, the signal does not harm its successor.
        self._asked("signal", task=name, signal=signal.SIGCONT.name)
        with self._lock:
            self._stopped.discard(name)

    def _asked(self, verb: str, **request: str) -> bool:
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
