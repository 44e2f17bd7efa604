"""An app: convolution, batch normalization, dropout and an LSTM from either end."""

from typing import Any

import keras

import pscluster.keras


def model(input_shape: tuple[int, ...], outputs: int) -> Any:
    """For windows of any length and any number of classes."""
    inputs = hidden = keras.Input(input_shape)
    hidden = keras.layers.Conv1D(32, 5, strides=2, activation="relu")(hidden)
    hidden = keras.layers.Dropout(0.2)(keras.layers.BatchNormalization()(hidden))
    hidden = keras.layers.Bidirectional(pscluster.keras.LSTM(16))(hidden)
    return keras.Model(inputs, pscluster.keras.Dense(outputs)(hidden))
