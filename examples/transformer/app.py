"""A small Transformer on windows of motion.

It has no `data`: the cluster brings its recordings, standardized.
"""

import keras
import numpy as np
from keras import layers

WIDTH = 48
HEADS = 4
PATCH = 8
"""Samples that become one position: attention over 16 of them costs a 64th of that over 128
samples."""


def model(input_shape, outputs):
    """Two encoder blocks; windows (steps, channels) in, a number for each activity out."""
    window = keras.Input(input_shape)
    x = layers.Conv1D(WIDTH, PATCH, strides=PATCH)(window)
    x = AddedPositions(x.shape[1])(x)
    for _ in range(2):
        normed = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(HEADS, WIDTH // HEADS, dropout=0.1)(normed, normed)
        inner = layers.Dense(2 * WIDTH, activation="gelu")(layers.LayerNormalization()(x))
        x = x + layers.Dropout(0.1)(layers.Dense(WIDTH)(inner))
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return keras.Model(window, layers.Dense(outputs)(x))


@keras.saving.register_keras_serializable("transformer")
class AddedPositions(layers.Layer):
    """Adds sines of the position, which are not trained (Vaswani et al. 2017, section 3.5)."""

    def __init__(self, positions, **options):
        super().__init__(**options)
        self.positions = positions

    def call(self, x):
        """Shape (batch, positions, width), as x."""
        width = x.shape[-1]
        rates = 1 / 10_000 ** (2 * (np.arange(width) // 2) / width)
        angles = np.arange(self.positions)[:, np.newaxis] * rates
        return x + np.where(np.arange(width) % 2, np.cos(angles), np.sin(angles)).astype("float32")

    def get_config(self):
        """What `.keras` files keep."""
        return {**super().get_config(), "positions": self.positions}
