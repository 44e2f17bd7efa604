"""Who reads the metrics, and waiting until the last ones were read."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

UNCOUNTED = "/metrics?uncounted"
"""What the cluster itself asks: reading what a role says must not look like a Prometheus that will come again."""
RECENT_SECONDS = 60.0
LINGER_SECONDS = 15.0
LOOK_UP_SECONDS = 0.1


class Scrapes:
    """Counts finished scrapes; `begun` of one is when its figures were taken."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._latest: float | None = None

    @contextmanager
    def one(self) -> Iterator[None]:
        """A scrape, from before its figures are taken until they are sent."""
        begun = self._clock()
        yield
        with self._changed:
            self._latest = max(begun, self._latest or begun)
            self._changed.notify_all()

    @property
    def watched(self) -> bool:
        """Whether somebody has come within the last minute, and so may be expected to come again."""
        latest = self._latest
        return latest is not None and self._clock() - latest < RECENT_SECONDS

    def linger(self, stop: Callable[[], bool], longest_seconds: float = LINGER_SECONDS) -> bool:
        """Wait until one more scrape, begun from now on, is done; whether it was.

        Not if nobody may be expected to come, not longer than given, and not once `stop()` is true.
        """
        began = self._clock()
        if not self.watched:
            return False
        while not stop():
            left = began + longest_seconds - self._clock()
            if left <= 0:
                return False
            with self._changed:
                if self._changed.wait_for(lambda: (self._latest or 0.0) >= began, min(left, LOOK_UP_SECONDS)):
                    return True
        return False
