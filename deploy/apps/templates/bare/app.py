"""Separates two spirals with a network written out in TensorFlow, without Keras."""

import numpy as np
import tensorflow as tf

UNITS = 64


def init(seed):
    """The parameters at the beginning, by name: NumPy arrays, which the cluster trains.

    Equal seeds give equal ones.
    """
    random = np.random.default_rng(seed)

    def weights(rows, columns):
        return random.normal(0, (2 / rows) ** 0.5, (rows, columns))

    return {
        "first/weights": weights(2, UNITS),
        "first/biases": np.zeros(UNITS),
        "second/weights": weights(UNITS, UNITS),
        "second/biases": np.zeros(UNITS),
        "answer/weights": weights(UNITS, 2),
        "answer/biases": np.zeros(2),
    }


def forward(parameters, statistics, x, training, seed):
    """The answers for a batch x (batch, 2): a number for each class, the largest one is the answer.

    `parameters` are tensors by the names of `init`. `statistics` is for values that no gradient
    trains, here none. `training` says whether the cluster trains or tests, and `seed` is for
    tf.random.stateless_* functions.
    """
    hidden = tf.nn.relu(x @ parameters["first/weights"] + parameters["first/biases"])
    hidden = tf.nn.relu(hidden @ parameters["second/weights"] + parameters["second/biases"])
    if training:
        kept = tf.random.stateless_uniform(tf.shape(hidden), seed) < 0.95
        hidden = tf.where(kept, hidden / 0.95, 0.0)
    return hidden @ parameters["answer/weights"] + parameters["answer/biases"]


def data(folder):
    """The examples: x holds points of the plane, y which spiral each is of.

    Every fifth point is for the test.

    `folder` is what `--data` names, else the folder of this file.
    """
    x, y = spirals(6000)
    test = np.arange(len(x)) % 5 == 0
    return {"x_train": x[~test], "y_train": y[~test], "x_test": x[test], "y_test": y[test]}


def spirals(count):
    """Points (count, 2) on two spirals, with noise, and the spiral of each (count,)."""
    random = np.random.default_rng(0)
    y = random.integers(0, 2, count)
    turn = random.uniform(0.2, 1.2, count) * 2 * np.pi
    points = (
        np.stack([np.cos(turn + y * np.pi), np.sin(turn + y * np.pi)], 1) * turn[:, np.newaxis] / 3
    )
    return (points + random.normal(0, 0.05, (count, 2))).astype("float32"), y
