"""Augmentation of training windows: the sensors turned, the time stretched and pressed, another way each time.

Um et al. 2017, "Data Augmentation of Wearable Sensor Data for Parkinson's Disease Monitoring using Convolutional Neural
Networks" (arXiv 1706.00527), with smooth maps in place of splines. All draws follow from the seed of the micro-batch.
"""

from dataclasses import dataclass
from math import pi
from typing import Any

from cluster.errors import UsageError
from cluster.inventory.training import AugmentSettings
from cluster.lazy import tf
from cluster.models.network import Problem
from cluster.models.window_statistics import AXES, sensors

SITE = 0xA06
"""Folded into the seed of a micro-batch: dropout sites count from 0."""
AXIS, ANGLE, STRETCH, PHASE = range(4)


@dataclass(frozen=True)
class Augmentation:
    """Turns and warps windows of shape (steps, channels)."""

    settings: AugmentSettings
    problem: Problem

    @classmethod
    def of(cls, settings: AugmentSettings | None, problem: Problem) -> "Augmentation | None":
        """None without settings. Raises UsageError for turns of channels that are no sensors of three axes."""
        if settings is None:
            return None
        if settings.rotation_degrees and not sensors(problem.channels):
            raise UsageError(
                "jobs.train.augment.rotation_degrees: expected channels in threes, x, y and z of each sensor, got "
                f"{problem.channels}: set it to 0"
            )
        return cls(settings, problem)

    def __call__(self, windows: Any, standardization: Any, seed: Any) -> Any:
        """Standardized windows (batch, steps, channels) augmented; `standardization` is float32 (2, channels)."""
        own = tf.random.experimental.stateless_fold_in(seed, SITE, alg="philox")
        if self.settings.rotation_degrees:
            raw = windows * standardization[1] + standardization[0]
            windows = (self._turned(raw, own) - standardization[0]) / standardization[1]
        return self._warped(windows, own) if self.settings.time_warp else windows

    def _turned(self, windows: Any, seed: Any) -> Any:
        """Every sensor of a window turned alike, about a random axis, by at most `rotation_degrees`."""
        count = tf.shape(windows)[0]
        axis = _drawn(seed, AXIS, [count, AXES], normal=True)
        axis /= tf.sqrt(tf.reduce_sum(tf.square(axis), 1, keepdims=True) + 1e-12)
        angle = _drawn(seed, ANGLE, [count]) * (self.settings.rotation_degrees * pi / 180.0)
        sine, cosine = tf.sin(angle)[:, None, None], tf.cos(angle)[:, None, None]
        x, y, z = tf.unstack(axis, axis=1)
        zero = tf.zeros_like(x)
        cross = tf.reshape(tf.stack([zero, -z, y, z, zero, -x, -y, x, zero], 1), [-1, AXES, AXES])
        # Rodrigues' formula.
        turn = tf.eye(AXES) * cosine + sine * cross + (1.0 - cosine) * axis[:, :, None] * axis[:, None, :]
        vectors = tf.reshape(windows, [-1, self.problem.window_steps * sensors(self.problem.channels), AXES])
        return tf.reshape(tf.matmul(vectors, turn, transpose_b=True), tf.shape(windows))

    def _warped(self, windows: Any, seed: Any) -> Any:
        """Each window read at times that run up to `time_warp` faster and slower; both ends stay where they are."""
        count, last = tf.shape(windows)[0], self.problem.window_steps - 1
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


def _drawn(seed: Any, site: int, shape: Any, normal: bool = False) -> Any:
    """Uniform from -1 to 1, or normal."""
    own = tf.random.experimental.stateless_fold_in(seed, site, alg="philox")
    if normal:
        return tf.random.stateless_normal(shape, own, alg="philox")
    return tf.random.stateless_uniform(shape, own, -1.0, 1.0, alg="philox")
