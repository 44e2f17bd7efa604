"""Predicts a number from the columns of a table.

It is drawn here (Friedman 1991): replace `rows` by your own.
"""

import keras
import numpy as np
from keras import layers

task = "regression"
"""The target is a number, not a class."""

COLUMNS = 10


def model(input_shape, outputs):
    """The network. A row goes in, the predicted numbers come out.

    `input_shape` is that of one row, here (10,); `outputs` is how many numbers to predict, here 1.
    """
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.Dense(64, activation="gelu"),
            layers.Dense(64, activation="gelu"),
            layers.Dense(outputs),
        ]
    )


def data(folder):
    """The examples, each column with mean 0 and deviation 1: networks learn best from such numbers.

    Mean and deviation are those of the training rows. `folder` is what `--data` names, else the
    folder of this file.
    """
    x, y = rows(4000)
    test = np.arange(len(x)) % 5 == 0
    x = (x - x[~test].mean(0)) / x[~test].std(0)
    y = (y - y[~test].mean()) / y[~test].std()
    return {"x_train": x[~test], "y_train": y[~test], "x_test": x[test], "y_test": y[test]}


def rows(count):
    """Five columns decide the target, the other five are of no use, and there is noise.

    For a file of your own: `table = np.genfromtxt(folder / "table.csv", delimiter=",",
    skip_header=1)`.
    """
    random = np.random.default_rng(0)
    x = random.random((count, COLUMNS))
    y = (
        10 * np.sin(np.pi * x[:, 0] * x[:, 1])
        + 20 * (x[:, 2] - 0.5) ** 2
        + 10 * x[:, 3]
        + 5 * x[:, 4]
    )
    return x.astype("float32"), (y + random.normal(0, 1, count)).astype("float32")
