"""What a window says without recurrence, and how training varies windows.

Moments, spectrum, correlations, gravity and more are plain operations without sorting, random
numbers or Python: a graph with them can be exported, and gives the same bits wherever the kernels
do. The selection follows Anguita et al. 2013 ("A Public Domain Dataset for Human Activity
Recognition Using Smartphones"), whose 561 values sort and filter more.

Augmentation of training windows turns sensors and stretches time: Um et al. 2017, "Data
Augmentation of Wearable Sensor Data for Parkinson's Disease Monitoring using Convolutional Neural
Networks" (arXiv 1706.00527), with smooth maps in place of splines. All draws follow from the seed
of the slot.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import pi
from typing import Any

from core.ground.errors import UsageError
from core.ground.lazy import np, tf
from core.inventory.training_sections import AugmentSettings
from core.models.network import Problem
from core.models.operations import Operations, Tensor

DEGREE = 18
"""The degree of the Taylor polynomials: an eighth of a turn is exact to float64's last bits."""


def cosines_and_sines(turns: Any) -> tuple[Any, Any]:
    """Return the cosines and the sines of whole `turns`, float64, a number or an array.

    Each step is one of IEEE's exactly rounded operations, in a fixed order.
    """
    quarter = np.rint(4.0 * turns)
    angle = (4.0 * turns - quarter) * (np.pi / 2.0)
    square = angle * angle
    cosine = _series(square, DEGREE)
    sine = angle * _series(square, DEGREE + 1)
    place = np.mod(quarter, 4.0).astype(np.int64)
    return (
        np.choose(place, [cosine, -sine, -cosine, sine]),
        np.choose(place, [sine, cosine, -sine, -cosine]),
    )


def _series(square: Any, degree: int) -> Any:
    """Return 1 - square / (2 * 1) * (1 - square / (4 * 3) * ...), or of 3 * 2, 5 * 4 and so on."""
    total = 1.0
    for n in range(degree, 1, -2):
        total = 1.0 - square / (n * (n - 1)) * total
    return total


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
            yield ops.lagged(centred, steps, lag) / (variance + SMALL)

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


SITE = 0xA06
"""Folded into the seed of a slot: dropout sites count from 0."""
AXIS, ANGLE, STRETCH, PHASE = range(4)


@dataclass(frozen=True)
class Augmentation:
    """Turns and warps windows of shape (steps, channels)."""

    settings: AugmentSettings
    problem: Problem

    @classmethod
    def from_settings(
        cls, settings: AugmentSettings | None, problem: Problem
    ) -> "Augmentation | None":
        """Return the augmentation of the settings, or None without settings.

        Raises UsageError for turns of channels that are no sensors of three axes.
        """
        if settings is None:
            return None
        if settings.rotation_degrees and not problem.sensors:
            raise UsageError(
                "jobs.train.augment.rotation_degrees: expected channels in threes, x, y and z of"
                f" each sensor, got {problem.channels} without such: set it to 0"
            )
        return cls(settings, problem)

    def __call__(self, windows: Any, standardization: Any, seed: Any) -> Any:
        """Return standardized windows (batch, steps, channels) augmented.

        `standardization` is float32 (2, channels).
        """
        site_seed = tf.random.experimental.stateless_fold_in(seed, SITE, alg="philox")
        if self.settings.rotation_degrees:
            windows = on_sensors(
                self.problem,
                windows,
                standardization,
                lambda signals, moments: self._turned(signals, moments, site_seed),
            )
        if self.settings.time_warp:
            return self._warped(windows, site_seed)
        return windows

    def _turned(self, standard: Any, standardization: Any, seed: Any) -> Any:
        """Turn a window's sensors alike, about a random axis, by `rotation_degrees` at most."""
        windows = standard * standardization[1] + standardization[0]
        count = tf.shape(windows)[0]
        axis = _drawn(seed, AXIS, [count, AXES], normal=True)
        axis /= tf.sqrt(tf.reduce_sum(tf.square(axis), 1, keepdims=True) + 1e-12)
        angle = _drawn(seed, ANGLE, [count]) * (self.settings.rotation_degrees * pi / 180.0)
        sine = tf.sin(angle)[:, None, None]
        cosine = tf.cos(angle)[:, None, None]
        x, y, z = tf.unstack(axis, axis=1)
        zero = tf.zeros_like(x)
        cross = tf.reshape(tf.stack([zero, -z, y, z, zero, -x, -y, x, zero], 1), [-1, AXES, AXES])
        # Rodrigues' formula.
        turn = (
            tf.eye(AXES) * cosine
            + sine * cross
            + (1.0 - cosine) * axis[:, :, None] * axis[:, None, :]
        )
        rows = self.problem.window_steps * len(self.problem.sensors)
        vectors = tf.reshape(windows, [-1, rows, AXES])
        turned = tf.reshape(tf.matmul(vectors, turn, transpose_b=True), tf.shape(windows))
        return (turned - standardization[0]) / standardization[1]

    def _warped(self, windows: Any, seed: Any) -> Any:
        """Read each window at times that run up to `time_warp` faster and slower; its ends stay."""
        count = tf.shape(windows)[0]
        last = self.problem.window_steps - 1
        stretch = _drawn(seed, STRETCH, [count, 1]) * self.settings.time_warp
        phase = _drawn(seed, PHASE, [count, 1]) * pi
        time = tf.range(self.problem.window_steps, dtype=tf.float32)[None]
        turns = 2.0 * pi / last * time
        place = time + stretch * (last / (2.0 * pi)) * (tf.sin(turns + phase) - tf.sin(phase))
        place = tf.clip_by_value(place, 0.0, float(last))
        before = tf.minimum(tf.cast(place, tf.int32), last - 1)
        share = (place - tf.cast(before, tf.float32))[:, :, None]
        return tf.gather(windows, before, batch_dims=1) * (1.0 - share) + (
            tf.gather(windows, before + 1, batch_dims=1) * share
        )


def on_sensors(
    problem: Problem, windows: Any, standardization: Any, turned: Callable[[Any, Any], Any]
) -> Any:
    """Return windows (batch, steps, channels) with what `turned` makes of their sensors' channels.

    It gets those channels alone, (batch, steps, axes), and their standardization, (2, axes).
    """
    axes = [first + axis for first in problem.sensors for axis in range(AXES)]
    if len(axes) == problem.channels:
        return turned(windows, standardization)
    other_channels = [place for place in range(problem.channels) if place not in axes]
    of_sensors = turned(tf.gather(windows, axes, axis=2), tf.gather(standardization, axes, axis=1))
    both = tf.concat([of_sensors, tf.gather(windows, other_channels, axis=2)], 2)
    order = [*axes, *other_channels]
    return tf.gather(both, [order.index(place) for place in range(problem.channels)], axis=2)


def _drawn(seed: Any, site: int, shape: Any, normal: bool = False) -> Any:
    """Uniform from -1 to 1, or normal."""
    site_seed = tf.random.experimental.stateless_fold_in(seed, site, alg="philox")
    if normal:
        return tf.random.stateless_normal(shape, site_seed, alg="philox")
    return tf.random.stateless_uniform(shape, site_seed, -1.0, 1.0, alg="philox")
