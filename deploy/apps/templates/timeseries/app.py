"""Predicts the next value of a series from the ones before.

The series are drawn here: replace `series` by your own.
"""

import keras
import numpy as np
from keras import layers

task = "regression"
"""The target is a number, not a class."""

STEPS = 48
"""Values that the network sees."""


def model(input_shape, outputs):
    """The network. A stretch of a series goes in, the next value comes out.

    `input_shape` is that of one example of `data`, here (STEPS, 1); `outputs` is how many numbers
    to predict, here 1.
    """
    stretch = keras.Input(input_shape)
    x = layers.Conv1D(16, 5, padding="causal", activation="relu")(stretch)
    x = layers.GRU(32)(x)
    return keras.Model(stretch, layers.Dense(outputs)(x))


def data(folder):
    """The examples: every stretch of STEPS values, and the value that follows it.

    Whole series are for the test.

    `groups` says which series a stretch is of: validation then holds out whole series too. `folder`
    is what `--data` names, else the folder of this file.
    """
    x, y, groups = stretches(series(40, 160))
    test = groups % 5 == 0
    return {
        "x_train": x[~test],
        "y_train": y[~test],
        "x_test": x[test],
        "y_test": y[test],
        "groups": groups[~test],
    }


def series(count, length):
    """Two swings of random rate and phase, and noise; shape (count, length)."""
    random = np.random.default_rng(0)
    time = np.arange(length)
    rates, phases = random.uniform(0.05, 0.5, (2, count, 1)), random.uniform(0, 6.28, (2, count, 1))
    return np.sin(rates * time + phases).sum(0) + random.normal(0, 0.1, (count, length))


def stretches(values):
    """Stretches (n, STEPS, 1), the value after each (n,), and which series each is of (n,)."""
    windows = np.lib.stride_tricks.sliding_window_view(values, STEPS + 1, axis=1).astype("float32")
    flat = windows.reshape(-1, STEPS + 1)
    return (
        flat[:, :-1, np.newaxis],
        flat[:, -1],
        np.repeat(np.arange(len(values)), windows.shape[1]),
    )
