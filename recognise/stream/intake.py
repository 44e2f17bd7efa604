"""Which readings of a stream count: finite ones, in the order of time, without a pause.

A rule looks at one reading and at the last good one before it, so chunks of any length are judged alike.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recognise.stream.events import BREAKS, Fault

Samples = NDArray[np.float64]

LARGEST_TIME_SECONDS = 1e11
"""A double still separates microseconds here; epoch milliseconds given as seconds are beyond it."""
LARGEST_VALUE = 1e4
"""In g and rad/s: no sensor measures it, and the filters stay finite."""
_BLOCK = 256


@dataclass(frozen=True)
class Run:
    """Good readings, in order. With `begins` they follow nothing: what came before is over."""

    times: Samples
    values: Samples
    begins: bool


class Intake:
    """Sorts readings into runs and faults."""

    def __init__(self, longest_gap_seconds: float) -> None:
        self._longest_gap = longest_gap_seconds
        self._last: float | None = None

    @property
    def last(self) -> float | None:
        """Seconds of the last good reading; None before the first."""
        return self._last

    def resume(self, last: float | None) -> None:
        """Continue behind this reading."""
        self._last = last

    def take(self, times: Samples, values: Samples) -> Iterator[Run | Fault]:
        """Runs and faults of the next readings, times (n,), values (n, channels), in the order of arrival."""
        for start in range(0, len(times), _BLOCK):
            yield from self._block(times[start : start + _BLOCK], values[start : start + _BLOCK])

    def _block(self, times: Samples, values: Samples) -> Iterator[Run | Fault]:
        sane = (np.abs(times) <= LARGEST_TIME_SECONDS) & (np.abs(values) <= LARGEST_VALUE).all(axis=1)
        begins = self._last is None
        if sane.all():
            steps = np.diff(times, prepend=times[0] if self._last is None else self._last)
            steps_are_good = (steps > 0) & (steps <= self._longest_gap)
            steps_are_good[0] |= begins
            if steps_are_good.all():
                self._last = float(times[-1])
                yield Run(times, values, begins)
                return
        kept: list[int] = []
        begins = False
        for row, (time, is_sane) in enumerate(zip(times.tolist(), sane.tolist(), strict=True)):
            fault = self._judged(time, is_sane)
            starts = self._last is None or (fault is not None and fault.kind in BREAKS)
            if fault is not None or starts:
                if kept:
                    yield Run(times[kept], values[kept], begins)
                kept, begins = [], False
            if fault is not None:
                yield fault
                if not starts or fault.kind == "bad_value":
                    continue
            begins = begins or starts
            kept.append(row)
            self._last = time
        if kept:
            yield Run(times[kept], values[kept], begins)

    def _judged(self, time: float, is_sane: bool) -> Fault | None:
        last = self._last
        if not is_sane:
            return Fault("bad_value", last or 0.0, "expected finite numbers of a sensible size; dropped one reading")
        if last is None:
            return None
        step = time - last
        if step == 0:
            return Fault("doubled", time, "dropped a second reading of this time")
        if step > self._longest_gap:
            return Fault("gap", last, f"no reading for {step:.3f} s; the windows restart")
        if step < -self._longest_gap:
            return Fault("clock_jump", last, f"the time went back by {-step:.3f} s; the windows restart")
        if step < 0:
            return Fault("late", time, f"dropped a reading that is {-step:.3f} s older than the one before it")
        return None
