"""Lines of a log that somebody else can cause thousands of times a second: a few a minute are written."""

import logging
import time
from collections.abc import Callable

EVERY_SECONDS = 60.0


class Seldom:
    """Writes at most `most` lines a minute to `log`; the first of the next minute says how many were left out."""

    def __init__(
        self,
        log: logging.Logger,
        level: int = logging.WARNING,
        most: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log, self._level, self._most, self._clock = log, level, most, clock
        self._begun = float("-inf")
        self._written = self._left_out = 0

    def say(self, words: str) -> None:
        """Write `words`, or count them."""
        now = self._clock()
        if now - self._begun >= EVERY_SECONDS:
            self._begun, self._written = now, 0
        if self._written >= self._most:
            self._left_out += 1
            return
        more = f" (and {self._left_out} such lines that were not written)" if self._left_out else ""
        self._written, self._left_out = self._written + 1, 0
        self._log.log(self._level, "%s%s", words, more)
