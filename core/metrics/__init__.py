"""Prometheus metrics: the scrapes of a port, counted; at a job's end one more is waited for.

The modules have the catalogue, the exporter, and what a process reports about itself and its node.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

UNCOUNTED = "/metrics?uncounted"
"""The path of the cluster's own reads, which do not count as scrapes of a Prometheus."""
RECENT_SECONDS = 60.0
LINGER_SECONDS = 15.0
LOOK_UP_SECONDS = 0.1


class Scrapes:
    """Records finished scrapes by the time at which each took its figures."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._latest: float | None = None

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count one scrape, from before it takes its figures until they are sent."""
        begun = self._clock()
        yield
        with self._changed:
            self._latest = max(begun, self._latest or begun)
            self._changed.notify_all()

    @property
    def watched(self) -> bool:
        """Whether a scrape came within the last minute, so that another one is likely."""
        latest = self._latest
        return latest is not None and self._clock() - latest < RECENT_SECONDS

    def linger(self, stop: Callable[[], bool], longest_seconds: float = LINGER_SECONDS) -> bool:
        """Wait for one more scrape that begins from now on; return whether it came.

        Return False at once if the port is not watched, after `longest_seconds`, and once `stop()`
        is true.
        """
        began = self._clock()
        if not self.watched:
            return False
        while not stop():
            remaining_seconds = began + longest_seconds - self._clock()
            if remaining_seconds <= 0:
                return False
            with self._changed:
                if self._changed.wait_for(
                    lambda: (self._latest or 0.0) >= began, min(remaining_seconds, LOOK_UP_SECONDS)
                ):
                    return True
        return False
