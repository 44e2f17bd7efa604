"""Dropout whose masks follow from a seed alone: a repeated step drops the same units, on every machine."""

from dataclasses import dataclass

import tensorflow as tf


@dataclass(frozen=True)
class Dropout:
    """Keeps each element with `keep_probability` and scales it up by its inverse, in training only.

    `site` tells the masks of one network's several dropouts apart.
    """

    keep_probability: float
    site: int

    def __call__(self, inputs: tf.Tensor, *, training: bool, seed: tf.Tensor) -> tf.Tensor:
        """The inputs' shape; `seed` is int32 of shape (2,)."""
        if not training or self.keep_probability == 1.0:
            return inputs
        own_seed = tf.random.experimental.stateless_fold_in(seed, self.site, alg="philox")
        # `auto_select` would pick the generator by the device's kind.
        return tf.nn.experimental.stateless_dropout(inputs, 1.0 - self.keep_probability, own_seed, rng_alg="philox")
