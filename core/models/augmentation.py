"""Augmentation of training windows: sensors are turned and time is stretched.

Um et al. 2017, "Data Augmentation of Wearable Sensor Data for Parkinson's Disease Monitoring using
Convolutional Neural Networks" (arXiv 1706.00527), with smooth maps in place of splines. All draws
follow from the seed of the slot.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import pi
from typing import Any

from core.ground.errors import UsageError
from core.ground.lazy import tf
from core.inventory.training_sections import AugmentSettings
from core.models.network import Problem
from core.models.window_statistics import AXES

SITE = 0xA06
"""Folded into the seed of a slot: dropout sites count from 0."""
AXIS, ANGLE, STRETCH, PHASE = range(4)


@dataclass(frozen=True)
class Augmentation:
    """Turns and warps windows of shape (steps, channels)."""

    settings: AugmentSettings
    problem: Problem

    @classmethod
    def of(cls, settings: AugmentSettings | None, problem: Problem) -> "Augmentation | None":
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
