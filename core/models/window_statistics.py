"""What a window says without recurrence: moments, spectrum, correlations, gravity and more.

Plain operations without sorting, random numbers or Python: a graph with them can be exported, and
gives the same bits wherever the kernels do. The selection follows Anguita et al. 2013
("A Public Domain Dataset for Human Activity Recognition Using Smartphones"), whose 561 values sort
and filter more.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from core.ground.lazy import np
from core.models.operations import Operations, Tensor
from core.models.turns import cosines_and_sines

AXES = 3
"""Channels that belong together, x, y and z of one sensor."""
LONGEST_SPECTRUM = 256
"""Steps that one spectrum is of; that of a longer window is the mean over such stretches."""
BANDS = (1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 24, 40, 64)
"""Borders of the bands, as bins of a window of 128 steps."""
LAGS = (1, 2, 4, 8, 16, 24, 32)
"""Steps by which a signal is moved against itself, in a window of 128 steps."""
REFERENCE_STEPS = 128
SMALL = 1e-6
"""Added to variances that divide: a signal that stands still correlates with nothing."""
CHANGE = 50.0
"""Factor that makes differences of neighbouring steps as large as the signals."""
WEAK = 0.1
"""A mean shorter than this share of its sensor's deviation has hardly a direction."""


@dataclass(frozen=True)
class WindowStatistics:
    """The statistics of windows of shape (steps, channels).

    vectors: the first channels of x, y and z of each sensor.
    """

    steps: int
    channels: int
    vectors: tuple[int, ...]

    @property
    def count(self) -> int:
        """Statistics of one window: 428 of 128 x 6, 642 of 128 x 9 in threes."""
        signals = self.channels + len(self.vectors)
        statistics = signals * (_count_of(self.steps) + _count_of(self.steps - 1))
        if self.vectors:
            return statistics + 2 * AXES * len(self.vectors)
        return statistics + self.channels * (self.channels > 1)

    def __call__(self, ops: Operations, windows: Tensor) -> Tensor:
        """Return float32 (batch, count) from windows (batch, steps, channels).

        All axes of a sensor are on one scale.
        """
        later = ops.cut(windows, 1, 1, self.steps)
        changes = (later - ops.cut(windows, 1, 0, self.steps - 1)) * CHANGE
        statistics: list[Tensor] = []
        for signals, steps in ((windows, self.steps), (changes, self.steps - 1)):
            statistics += self._of_signals(ops, self._with_lengths(ops, signals, steps), steps)
        return ops.concat([*statistics, *self._between(ops, windows)], 1)

    def _with_lengths(self, ops: Operations, signals: Tensor, steps: int) -> Tensor:
        """Return the signals, then the length of each sensor's vector.

        No turn of the sensor changes it.
        """
        if not self.vectors:
            return signals
        of_sensors = ops.unary("square", self._of_sensors(ops, signals))
        axes = ops.reshape(of_sensors, [steps, len(self.vectors), AXES])
        squares = ops.reduce("sum", axes, 3)
        return ops.concat([signals, ops.unary("sqrt", squares + SMALL * SMALL)], 2)

    def _of_sensors(self, ops: Operations, signals: Tensor) -> Tensor:
        """Return the channels that are vectors, (batch, steps, axes)."""
        if AXES * len(self.vectors) == self.channels:
            return signals
        sensor_signals = [ops.cut(signals, 2, first, first + AXES) for first in self.vectors]
        return sensor_signals[0] if len(sensor_signals) == 1 else ops.concat(sensor_signals, 2)

    def _of_signals(self, ops: Operations, signals: Tensor, steps: int) -> Iterator[Tensor]:
        """Yield (batch, some multiple of signals) of signals (batch, steps, signals)."""
        count = self.channels + len(self.vectors)
        mean = ops.reduce("mean", signals, 1, keep_axis=True)
        centred = signals - mean
        variance = ops.reduce("mean", ops.unary("square", centred), 1)
        yield ops.reshape(mean, [count])
        yield ops.unary("sqrt", variance + SMALL * SMALL)
        yield ops.reduce("mean", ops.unary("absolute", centred), 1)
        yield ops.reduce("max", signals, 1)
        yield ops.reduce("min", signals, 1)
        yield ops.reduce("mean", ops.unary("square", signals), 1)
        spectrum, bins = _log_spectrum(ops, centred, steps, count)
        for begin, end in bands(steps):
            yield ops.reduce("mean", ops.cut(spectrum, 1, begin, end), 1)
        yield ops.reduce("max", ops.cut(spectrum, 1, 1, bins), 1)
        for lag in lags(steps):
            moved = ops.cut(centred, 1, lag, steps) * ops.cut(centred, 1, 0, steps - lag)
            yield ops.reduce("mean", moved, 1) / (variance + SMALL)

    def _between(self, ops: Operations, windows: Tensor) -> Iterator[Tensor]:
        """Yield how each axis goes with its sensor's next one, and where the mean points."""
        channels = self.channels
        if not self.vectors:
            if channels > 1:
                yield _correlation(ops, windows, _rolled(ops, windows, 2, channels))
            return
        values = AXES * len(self.vectors)
        shape = [self.steps, len(self.vectors), AXES]
        axes = ops.reshape(self._of_sensors(ops, windows), shape)
        correlation = _correlation(ops, axes, _rolled(ops, axes, 3, AXES))
        yield ops.reshape(correlation, [values])
        mean = ops.reduce("mean", axes, 1)
        length = ops.unary("sqrt", ops.reduce("sum", ops.unary("square", mean), 2, keep_axis=True))
        yield ops.reshape(mean / (length + WEAK), [values])


def _log_spectrum(ops: Operations, centred: Tensor, steps: int, count: int) -> tuple[Tensor, int]:
    """Return the log of 1 + power, (batch, bins, signals), and the number of bins.

    One matrix product with cosines and sines makes it.
    """
    stretch = min(steps, LONGEST_SPECTRUM)
    stretches = steps // stretch
    bins = stretch // 2 + 1
    whole = ops.cut(centred, 1, 0, stretches * stretch)
    rows = ops.transpose(ops.reshape(whole, [stretches, stretch, count]), [0, 1, 3, 2])
    turns = ops.dense(rows, waves(stretch, bins), None)
    cosines = ops.unary("square", ops.cut(turns, 3, 0, bins))
    power = cosines + ops.unary("square", ops.cut(turns, 3, bins, 2 * bins))
    average = ops.reduce("mean", power, 1)
    return ops.transpose(ops.unary("log1p", average), [0, 2, 1]), bins


def waves(steps: int, bins: int) -> Any:
    """Float32 (steps, 2 * bins): cosines, then sines, of whole periods in `steps`."""
    turns = np.outer(np.arange(steps), np.arange(bins)) % steps
    return np.concatenate(cosines_and_sines(turns / steps), 1).astype(np.float32)


def bands(steps: int) -> list[tuple[int, int]]:
    """Return begin and end of each band, as bins of a window of `steps`.

    Bands narrower than a bin fall together.
    """
    stretch = min(steps, LONGEST_SPECTRUM)
    bins = stretch // 2 + 1
    scale = stretch / REFERENCE_STEPS
    borders = sorted({min(bins, max(1, round(border * scale))) for border in BANDS})
    return list(itertools.pairwise(borders))


def lags(steps: int) -> list[int]:
    """Steps that a signal of `steps` is moved by, each once."""
    scale = max(1.0, steps / REFERENCE_STEPS)
    return sorted({round(lag * scale) for lag in LAGS if round(lag * scale) < steps // 2 + 1})


def _count_of(steps: int) -> int:
    """Statistics of one signal."""
    return 7 + len(bands(steps)) + len(lags(steps))


def _rolled(ops: Operations, values: Tensor, axis: int, length: int) -> Tensor:
    """Return the values moved by one along the axis, the last one in front."""
    last = ops.cut(values, axis, length - 1, length)
    return ops.concat([last, ops.cut(values, axis, 0, length - 1)], axis)


def _correlation(ops: Operations, first: Tensor, second: Tensor) -> Tensor:
    """Return Pearson's correlation over axis 1."""
    first = first - ops.reduce("mean", first, 1, keep_axis=True)
    second = second - ops.reduce("mean", second, 1, keep_axis=True)
    of_first = ops.reduce("mean", ops.unary("square", first), 1)
    of_second = ops.reduce("mean", ops.unary("square", second), 1)
    spreads = ops.unary("sqrt", of_first * of_second)
    return ops.reduce("mean", first * second, 1) / (spreads + SMALL)
