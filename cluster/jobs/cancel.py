"""Ctrl-C in a job: stop scheduling, keep what there is. A second one ends the process at once."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

from core.ground.errors import ExitCode

CALLS_SECONDS = 25.0
"""Time for the workers' calls under way after the request to stop; the run keeps their pushes."""

GRACE_SECONDS = 40.0
"""Time for the test of a cancelled run: `fab` kills a job 60 s after it asked it to stop, and the
result is to be written."""
SHOW_CURSOR = b"\x1b[?25h"


STOP_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM})


class JobCancelled(Exception):
    """The user asked to stop, and there is nothing to finish first."""


class Cancel(AbstractContextManager["Cancel"]):
    """Whether the user asked to stop, by SIGINT or SIGTERM while this context manager is active."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._asked_at: float | None = None
        self._before: dict[int, object] = {}
        self._at_once = False
        self._child: int | None = None
        self._has_passed_on = False

    def __enter__(self) -> "Cancel":
        for number in STOP_SIGNALS:
            self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal gave us

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if self._child is not None:
            os.kill(self._child, number)
            self._has_passed_on = True
        elif self._asked.is_set():
            if sys.stderr.isatty():
                os.write(2, SHOW_CURSOR)  # a live progress bar hides it
            os._exit(ExitCode.CANCELLED)
        self._asked_at = time.monotonic()
        self._asked.set()
        if self._at_once:
            raise KeyboardInterrupt

    @contextmanager
    def passed_on_to(self, child: int) -> Iterator[None]:
        """Pass every request to stop on to a child process, one from before too.

        They may be blocked since before its fork; inside they are not. The child must not be waited
        for inside.
        """
        # In this order a request reaches the child once, whenever it comes.
        self._has_passed_on = False
        self._child = child
        try:
            if self.asked and not self._has_passed_on:
                os.kill(child, signal.SIGINT)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            yield
        finally:
            self._child = None

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Raise Cancelled from whatever runs in here: a person's own code, which never checks.

        Main thread only.

        For the places where nothing has begun: what runs may be left half done.
        """
        self.check()
        self._at_once = True
        try:
            yield
        except KeyboardInterrupt:
            if not self.asked:
                raise
            raise JobCancelled from None
        finally:
            self._at_once = False

    @property
    def asked(self) -> bool:
        """Whether to stop."""
        return self._asked.is_set()

    def overdue(self) -> bool:
        """Whether the grace after the request to stop is over."""
        return self._asked_at is not None and time.monotonic() - self._asked_at > GRACE_SECONDS

    def check(self) -> None:
        """Raise Cancelled if the user asked to stop. For the places where nothing has begun."""
        if self.asked:
            raise JobCancelled
