"""The intake of a stream: good readings in the order of time, then samples at the model's rate.

A rule looks at one reading and at the last good one before it, so chunks of any length are judged
alike. Samples are linear between two readings, on a grid that begins at the first one. A reading
within a hundredth of a step of the grid is taken as it is, so a recording at the model's own rate
passes bit for bit.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from core.data.arrays import Numbers

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


SNAP = 0.01
"""Share of a step; at 50 Hz 0.2 ms."""
FASTER = 1.25
"""Factor by which a sensor is faster than the model from which on it is low-passed first, or its
noise would fold into the signal."""
ANTI_ALIAS = 0.45
"""Cutoff as a share of the model's rate: below half of it."""
SPARSE = 2.02
"""Steps between the readings around a sample, on average over a window: 2 is half of the model's
rate."""
_ORDER = 3


class Resampler:
    """A resampler, which keeps the last reading, the grid's begin and its next step."""

    def __init__(self, sampling_hz: float, source_hz: float | None = None) -> None:
        from scipy import signal  # 50 MB, which a service without live sessions spares

        self._rate = sampling_hz
        self._snap = SNAP / sampling_hz
        self._begin = 0.0
        self._next = 0
        self._last: tuple[Samples, Samples] | None = None
        self._sections: Samples | None = None
        self._state: Samples | None = None
        if source_hz is not None and source_hz > FASTER * sampling_hz:
            self._sections = signal.butter(
                _ORDER, ANTI_ALIAS * sampling_hz, fs=source_hz, output="sos"
            )

    @property
    def began(self) -> bool:
        """Whether there is a grid: it begins at the first reading."""
        return self._last is not None

    def time_of(self, step: int) -> float:
        """Return the seconds of a step of the grid, counted from 0."""
        return self._begin + step / self._rate

    def latest_of(self, steps: NDArray[np.integer]) -> Samples:
        """Return the latest time, in seconds, of a reading that belongs to each of these steps."""
        times: Samples = self._begin + steps / self._rate + self._snap
        return times

    @property
    def steps(self) -> int:
        """Return how many samples it has given."""
        return self._next

    @property
    def last(self) -> float | None:
        """Seconds of the last reading; None before the first."""
        if self._last is None:
            return None
        return float(self._last[0][0])

    def push(self, times: Samples, values: Samples) -> tuple[Samples, Samples]:
        """Return the next samples, (m, channels), and the step between readings around each, (m,).

        The step is in seconds. `times` (n,) rise, across calls too; `values` are (n, channels).
        """
        values = self._without_aliases(values)
        if self._last is None:
            self._begin = float(times[0])
        else:
            times = np.concatenate([self._last[0], times])
            values = np.concatenate([self._last[1], values])
        self._last = times[-1:].copy(), values[-1:].copy()
        # One step too many, for the rounding: the grid's own times decide.
        count = max(0, int((float(times[-1]) - self._begin) * self._rate) + 3 - self._next)
        grid = self._begin + np.arange(self._next, self._next + count) / self._rate
        grid = grid[grid <= times[-1] + self._snap]
        self._next += len(grid)
        after = np.searchsorted(times, grid - self._snap, side="left")
        before = np.maximum(after - 1, 0)
        exact = times[after] <= grid + self._snap
        wide = np.where(after > before, times[after] - times[before], 1.0 / self._rate)
        share = np.where(exact, 1.0, (grid - times[before]) / wide)[:, np.newaxis]
        mixed = values[before] * (1.0 - share) + values[after] * share
        return np.where(exact[:, np.newaxis], values[after], mixed), wide

    def _without_aliases(self, values: Samples) -> Samples:
        from scipy import signal  # 50 MB, which a service without live sessions spares

        if self._sections is None:
            return values
        if self._state is None:
            self._state = signal.sosfilt_zi(self._sections)[:, :, np.newaxis] * values[0]
        filtered: Samples
        filtered, self._state = signal.sosfilt(self._sections, values, axis=0, zi=self._state)
        return filtered


def rate_of(times: Numbers) -> float | None:
    """Return the readings a second, by the median step, or None for fewer than three readings."""
    steps = np.diff(times[np.isfinite(times)])
    rising = steps[(steps > 1e-12) & (steps < np.inf)]
    if len(rising) < 2:
        return None
    return 1.0 / float(np.median(rising))
