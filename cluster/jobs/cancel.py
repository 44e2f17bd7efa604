"""Ctrl-C in a job: stop scheduling, keep what there is. A second one ends the process at once."""

import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import TypeVar

from cluster.errors import ExitCode

T = TypeVar("T")
SHOW_CURSOR = b"\x1b[?25h"


class Cancelled(Exception):
    """The person asked to stop, and there is nothing to finish first."""


class Cancel:
    """Whether the person asked to stop; listens to SIGINT and SIGTERM while it is used as a context manager."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Cancel":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal gave us

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        if self._asked.is_set():
            if sys.stderr.isatty():
                os.write(2, SHOW_CURSOR)  # a live progress bar hides it
            os._exit(ExitCode.CANCELLED)
        self._asked.set()

    @property
    def asked(self) -> bool:
        """Whether to stop."""
        return self._asked.is_set()

    def check(self) -> None:
        """Raises Cancelled if the person asked to stop. For the places where nothing has begun."""
        if self.asked:
            raise Cancelled

    def until_asked(self, items: Iterable[T]) -> Iterator[T]:
        """The items, ending early when the person asks to stop: what is on its way still comes to its end."""
        for item in items:
            if self.asked:
                return
            yield item
