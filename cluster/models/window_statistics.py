"""What a window says without recurrence: moments, extremes, spectrum, autocorrelation, correlated axes, gravity.

Plain TensorFlow operations without sorting, random numbers or Python: a graph with them can be exported, and gives the
same bits wherever the kernels do. The selection follows Anguita et al. 2013 ("A Public Domain Dataset for Human
Activity Recognition Using Smartphones"), whose 561 values sort and filter more.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cluster.lazy import np, tf

AXES = 3
"""Channels that belong together, x, y and z of one sensor, where the number of channels divides by it."""
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
"""What differences of neighbouring steps are multiplied by, so that they are as large as the signals."""
WEAK = 0.1
"""A mean shorter than this share of its sensor's deviation has hardly a direction."""


def sensors(channels: int) -> int:
    """Groups of x, y and z among these channels; 0 where they do not come in threes."""
    return channels // AXES if channels % AXES == 0 else 0


@dataclass(frozen=True)
class WindowStatistics:
    """The statistics of windows of shape (steps, channels)."""

    steps: int
    channels: int

    @property
    def count(self) -> int:
        """Statistics of one window: 428 of 128 x 6, 642 of 128 x 9."""
        signals = self.channels + sensors(self.channels)
        own = signals * (_count_of(self.steps) + _count_of(self.steps - 1))
        if sensors(self.channels):
            return own + 2 * self.channels
        return own + self.channels * (self.channels > 1)

    def __call__(self, windows: Any) -> Any:
        """Float32 (batch, count) from windows (batch, steps, channels), all axes of a sensor on one scale."""
        changes = CHANGE * (windows[:, 1:] - windows[:, :-1])
        found = [part for signals in (windows, changes) for part in _of_signals(self._with_lengths(signals))]
        return tf.concat([*found, *self._between(windows)], 1)

    def _with_lengths(self, signals: Any) -> Any:
        """The signals, then the length of each sensor's vector: it does not depend on how the sensor is turned."""
        if not sensors(self.channels):
            return signals
        shape = [-1, signals.shape[1], sensors(self.channels), AXES]
        squares = tf.reduce_sum(tf.square(tf.reshape(signals, shape)), 3)
        return tf.concat([signals, tf.sqrt(squares + SMALL * SMALL)], 2)

    def _between(self, windows: Any) -> Iterator[Any]:
        """How each axis goes with the next one of its sensor, and where the sensor's mean points."""
        if not sensors(self.channels):
            if self.channels > 1:
                yield _correlation(windows, tf.roll(windows, 1, 2))
            return
        axes = tf.reshape(windows, [-1, self.steps, sensors(self.channels), AXES])
        yield tf.reshape(_correlation(axes, tf.roll(axes, 1, 3)), [-1, self.channels])
        mean = tf.reduce_mean(axes, 1)
        direction = mean / (tf.sqrt(tf.reduce_sum(tf.square(mean), 2, keepdims=True)) + WEAK)
        yield tf.reshape(direction, [-1, self.channels])


def _of_signals(signals: Any) -> Iterator[Any]:
    """Each (batch, some multiple of signals) of signals (batch, steps, signals)."""
    steps = signals.shape[1]
    mean = tf.reduce_mean(signals, 1, keepdims=True)
    centred = signals - mean
    variance = tf.reduce_mean(tf.square(centred), 1)
    yield mean[:, 0]
    yield tf.sqrt(variance + SMALL * SMALL)
    yield tf.reduce_mean(tf.abs(centred), 1)
    yield tf.reduce_max(signals, 1)
    yield tf.reduce_min(signals, 1)
    yield tf.reduce_mean(tf.square(signals), 1)
    spectrum = _log_spectrum(centred)
    for begin, end in bands(steps):
        yield tf.reduce_mean(spectrum[:, begin:end], 1)
    yield tf.reduce_max(spectrum[:, 1:], 1)
    for lag in lags(steps):
        together = tf.reduce_mean(centred[:, lag:] * centred[:, :-lag], 1)
        yield together / (variance + SMALL)


def _log_spectrum(centred: Any) -> Any:
    """Log of 1 + power, (batch, bins, signals), by one matrix product with cosines and sines."""
    stretch = min(centred.shape[1], LONGEST_SPECTRUM)
    stretches, bins = centred.shape[1] // stretch, stretch // 2 + 1
    cut = tf.reshape(centred[:, : stretches * stretch], [-1, stretch, centred.shape[2]])
    rows = tf.reshape(tf.transpose(cut, [0, 2, 1]), [-1, stretch])
    turns = tf.matmul(rows, tf.constant(waves(stretch, bins)))
    power = tf.square(turns[:, :bins]) + tf.square(turns[:, bins:])
    power = tf.reduce_mean(tf.reshape(power, [-1, stretches, centred.shape[2], bins]), 1)
    return tf.transpose(tf.math.log1p(power), [0, 2, 1])


def waves(steps: int, bins: int) -> Any:
    """Float32 (steps, 2 * bins): cosines, then sines, of whole periods in `steps`."""
    turns = np.outer(np.arange(steps), np.arange(bins)) % steps
    angles = 2.0 * np.pi * turns / steps
    return np.concatenate([np.cos(angles), np.sin(angles)], 1).astype(np.float32)


def bands(steps: int) -> list[tuple[int, int]]:
    """Begin and end of each band, as bins of a window of `steps`; bands narrower than a bin fall together."""
    stretch = min(steps, LONGEST_SPECTRUM)
    bins, scale = stretch // 2 + 1, stretch / REFERENCE_STEPS
    borders = sorted({min(bins, max(1, round(border * scale))) for border in BANDS})
    return list(itertools.pairwise(borders))


def lags(steps: int) -> list[int]:
    """Steps that a signal of `steps` is moved by, each once."""
    scale = max(1.0, steps / REFERENCE_STEPS)
    return sorted({round(lag * scale) for lag in LAGS if round(lag * scale) < steps // 2 + 1})


def _count_of(steps: int) -> int:
    """Statistics of one signal."""
    return 7 + len(bands(steps)) + len(lags(steps))


def _correlation(first: Any, second: Any) -> Any:
    """Pearson's, over axis 1."""
    first = first - tf.reduce_mean(first, 1, keepdims=True)
    second = second - tf.reduce_mean(second, 1, keepdims=True)
    spreads = tf.sqrt(tf.reduce_mean(tf.square(first), 1) * tf.reduce_mean(tf.square(second), 1))
    return tf.reduce_mean(first * second, 1) / (spreads + SMALL)
