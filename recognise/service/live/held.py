"""Readings that wait until a window is whole: one push of many costs what one push of few does. Pure."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recognise.service.live.messages import Readings, Three, Value
from recognise.stream import Stream

Numbers = NDArray[np.float64]

MOST_HELD = 512
"""Readings; about 5 s of a phone's fastest sensor."""


class Held:
    """Readings of one stream, between two pushes. A fault of their times is no reason to wait."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._gap = stream.settings.longest_gap_seconds
        self._early = 0.5 / stream.settings.sampling_hz
        self._last: float | None = None
        self._times: list[Value] = []
        self._acceleration: list[Three] = []
        self._rotation: list[Three] = []

    def add(self, given: Readings) -> bool:
        """Hold these too; whether it is time to `take` them."""
        is_due = not self._are_plain(given.times)
        self._times += given.times
        self._acceleration += given.acceleration
        self._rotation += given.rotation
        last = self._last = given.times[-1]
        return is_due or last is None or last + self._early >= self._stream.due or len(self._times) >= MOST_HELD

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held."""
        return not self._times

    def take(self) -> tuple[Numbers, Numbers, Numbers]:
        """All that is held: times, acceleration, rotation; NaN where a value is missing."""
        found = [np.array(values, np.float64) for values in (self._times, self._acceleration, self._rotation)]
        self._times, self._acceleration, self._rotation = [], [], []
        return found[0], found[1], found[2]

    def _are_plain(self, times: Sequence[Value]) -> bool:
        before = self._last
        for time in times:
            if time is None or before is None or not 0.0 < time - before <= self._gap:
                return False
            before = time
        return True
