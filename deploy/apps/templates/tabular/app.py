"""Predicts a number from the columns of a table.

Put yours into `table.csv`, the number to predict last; without that file the app draws one itself
(Friedman 1991).
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

    Mean and deviation are those of the training rows, and every fifth row is for the test.

    `folder` is what `--data` names, here a table, else the folder of this file. Columns of words
    become numbers by `pandas.get_dummies(pandas.read_csv(file), dtype=float).to_numpy()`.
    """
    is_app = (folder / "app.py").is_file()
    file = folder / "table.csv" if is_app else folder
    drawn = is_app and not file.is_file()
    table = draw(4000) if drawn else np.genfromtxt(file, delimiter=",", skip_header=1)
    test = np.arange(len(table)) % 5 == 0
    table = (table - table[~test].mean(0)) / table[~test].std(0)
    x, y = table[:, :-1], table[:, -1]
    return {"x_train": x[~test], "y_train": y[~test], "x_test": x[test], "y_test": y[test]}


def draw(count):
    """Rows whose last number five columns decide; the other five are of no use. There is noise."""
    random = np.random.default_rng(0)
    x = random.random((count, COLUMNS))
    y = (
        10 * np.sin(np.pi * x[:, 0] * x[:, 1])
        + 20 * (x[:, 2] - 0.5) ** 2
        + 10 * x[:, 3]
        + 5 * x[:, 4]
    )
    return np.column_stack([x, y + random.normal(0, 1, count)])
