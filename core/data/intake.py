"""The intake of a stream: readings count that are finite, in the order of time, without a pause.

A rule looks at one reading and at the last good one before it, so chunks of any length are judged
alike.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float64]

FaultKind: TypeAlias = Literal[
    "bad_value", "doubled", "late", "gap", "clock_jump", "sparse", "implausible"
]
BREAKS: tuple[FaultKind, ...] = ("gap", "clock_jump")
"""Faults after which all restarts."""

LARGEST_TIME_SECONDS = 1e11
"""Limit at which a double still separates microseconds; epoch milliseconds are beyond it."""
LARGEST_VALUE = 1e4
"""Limit in g and rad/s: no sensor measures it, and the filters stay finite."""
_BLOCK = 256
UNITS = {"milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
"""Number of each in a second."""
SLOWEST_HZ = 2.0
_USUAL_HZ = 400.0
"""Readings a second of a motion sensor; less than a factor of 1,000 apart, so that at most one unit
fits."""
FASTEST_HZ = 2000.0
"""Limit of sensors of a person's motion; times in minutes look faster."""


@dataclass(frozen=True)
class InputFault:
    """A fault of the input.

    at: seconds, as the readings have them: of the reading, of the window's end, or of the last good
    reading before a gap, a jump or a bad value (0.0 before the first one).
    """

    kind: FaultKind
    at: float
    detail: str


@dataclass(frozen=True)
class GoodReadings:
    """Good readings in order. With `begins` they follow nothing: what came before is over."""

    times: Samples
    values: Samples
    begins: bool


class Intake:
    """A sorter of readings into good ones and faults."""

    def __init__(
        self, longest_gap_seconds: float, largest: float | Samples = LARGEST_VALUE
    ) -> None:
        """`largest` is what a value may be, for all channels or for each, (channels,)."""
        self._longest_gap = longest_gap_seconds
        self._largest = largest
        self._last: float | None = None
        self._is_alone = False
        """Whether nothing but the last good reading came since a break."""

    @property
    def last(self) -> float | None:
        """Seconds of the last good reading; None before the first."""
        return self._last

    def resume(self, last: float | None, *, is_alone: bool) -> None:
        """Continue behind this reading; `is_alone` where it is the only one since a break."""
        self._last = last
        self._is_alone = is_alone

    def take(self, times: Samples, values: Samples) -> Iterator[GoodReadings | InputFault]:
        """Yield the good readings and faults, in order, of times (n,) and values (n, channels)."""
        for start in range(0, len(times), _BLOCK):
            yield from self._block(times[start : start + _BLOCK], values[start : start + _BLOCK])

    def _block(self, times: Samples, values: Samples) -> Iterator[GoodReadings | InputFault]:
        sane = (np.abs(times) <= LARGEST_TIME_SECONDS) & (np.abs(values) <= self._largest).all(
            axis=1
        )
        begins = self._last is None
        if sane.all():
            steps = np.diff(times, prepend=times[0] if self._last is None else self._last)
            steps_are_good = (steps > 0) & (steps <= self._longest_gap)
            steps_are_good[0] |= begins
            if steps_are_good.all():
                self._last = float(times[-1])
                self._is_alone = begins and len(times) == 1
                yield GoodReadings(times, values, begins)
                return
        good_rows: list[int] = []
        begins = False
        for row, (time, is_sane) in enumerate(zip(times.tolist(), sane.tolist(), strict=True)):
            fault = self._judged(time, is_sane)
            starts = self._last is None or (fault is not None and fault.kind in BREAKS)
            if fault is not None or starts:
                if good_rows:
                    yield GoodReadings(times[good_rows], values[good_rows], begins)
                good_rows = []
                begins = False
            if fault is not None:
                yield fault
                if not starts or fault.kind == "bad_value":
                    continue
            begins = begins or starts
            good_rows.append(row)
            self._last = time
            self._is_alone = starts
        if good_rows:
            yield GoodReadings(times[good_rows], values[good_rows], begins)

    def _judged(self, time: float, is_sane: bool) -> InputFault | None:
        last = self._last
        if not is_sane:
            expected = "finite numbers of a sensible size"
            if LARGEST_TIME_SECONDS < abs(time) < math.inf:
                expected = (
                    f"the time in seconds, got {time:.6g}; is it in milliseconds or smaller units?"
                )
            return InputFault("bad_value", last or 0.0, f"expected {expected}; dropped one reading")
        if last is None:
            return None
        step = time - last
        if step == 0:
            return InputFault("doubled", time, "dropped a second reading of this time")
        if step > self._longest_gap:
            # One pause says nothing about the unit; a pause behind each reading does.
            hint = f"; {unit_hint(step)}" if self._is_alone else ""
            return InputFault(
                "gap", last, f"no reading for {step:.3f} s; the windows restart{hint}"
            )
        if step < -self._longest_gap:
            return InputFault(
                "clock_jump", last, f"the time went back by {-step:.3f} s; the windows restart"
            )
        if step < 0:
            return InputFault(
                "late",
                time,
                f"dropped a reading that is {-step:.3f} s older than the one before it",
            )
        return None


def likely_unit(step: float) -> str | None:
    """Return the unit in which this step between two readings is one of a sensor, or None.

    The step was taken for seconds.
    """
    if not step > 0:
        return None
    return next(
        (unit for unit, second in UNITS.items() if SLOWEST_HZ <= second / step <= _USUAL_HZ), None
    )


def unit_hint(step: float) -> str:
    """Return what to ask a person whose times have this step."""
    unit = likely_unit(step)
    if unit is None:
        return "are the times in seconds?"
    return f"the times look like {unit}: divide them by {UNITS[unit]:,.0f}"
