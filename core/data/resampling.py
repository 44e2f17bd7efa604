"""Readings of any rate become samples at the model's rate, linear between two readings.

The grid begins at the first reading. A reading within a hundredth of a step of the grid is taken as
it is, so a recording at the model's own rate passes bit for bit.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import signal

from core.data.intake import Samples

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
        if self._sections is None:
            return values
        if self._state is None:
            self._state = signal.sosfilt_zi(self._sections)[:, :, np.newaxis] * values[0]
        filtered: Samples
        filtered, self._state = signal.sosfilt(self._sections, values, axis=0, zi=self._state)
        return filtered


def rate_of(times: NDArray[np.float64]) -> float | None:
    """Return the readings a second, by the median step, or None for fewer than three readings."""
    steps = np.diff(times[np.isfinite(times)])
    rising = steps[(steps > 1e-12) & (steps < np.inf)]
    if len(rising) < 2:
        return None
    return 1.0 / float(np.median(rising))
