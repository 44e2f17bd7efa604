"""An app: convolution, batch normalization, dropout and a GRU from either end."""

from typing import Any

import keras


def model(input_shape: tuple[int, ...], outputs: int) -> Any:
    """For windows of any length and any number of classes."""
    inputs = hidden = keras.Input(input_shape)
    hidden = keras.layers.Conv1D(32, 5, strides=2, activation="relu")(hidden)
    hidden = keras.layers.Dropout(0.2)(keras.layers.BatchNormalization()(hidden))
    hidden = keras.layers.Bidirectional(keras.layers.GRU(16))(hidden)
    return keras.Model(inputs, keras.layers.Dense(outputs)(hidden))
