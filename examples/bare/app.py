"""Concentric rings without Keras.

A network written out in TensorFlow, with statistics and dropout of its own.
"""

import numpy as np
import tensorflow as tf

UNITS = 32
MOMENTUM = 0.9


def init(seed):
    """Parameters, and statistics that no gradient trains: mean and variance of the inputs."""
    random = np.random.default_rng(seed)

    def weights(rows, columns):
        return random.normal(0, (2 / rows) ** 0.5, (rows, columns))

    parameters = {
        "first/weights": weights(3, UNITS),
        "first/biases": np.zeros(UNITS),
        "second/weights": weights(UNITS, UNITS),
        "second/biases": np.zeros(UNITS),
        "answer/weights": weights(UNITS, 3),
        "answer/biases": np.zeros(3),
    }
    return parameters, {"mean": np.zeros(3), "variance": np.ones(3)}


def forward(parameters, statistics, x, training, seed):
    """Answers (batch, 3) for points x (batch, 3); in training the new statistics beside them."""
    if training:
        mean, variance = tf.nn.moments(x, [0])
        new = {
            "mean": MOMENTUM * statistics["mean"] + (1 - MOMENTUM) * mean,
            "variance": MOMENTUM * statistics["variance"] + (1 - MOMENTUM) * variance,
        }
    else:
        mean, variance, new = statistics["mean"], statistics["variance"], {}
    hidden = (x - mean) * tf.math.rsqrt(variance + 1e-3)
    for name in ("first", "second"):
        hidden = tf.nn.relu(hidden @ parameters[f"{name}/weights"] + parameters[f"{name}/biases"])
    if training:
        kept = tf.random.stateless_uniform(tf.shape(hidden), seed) < 0.9
        hidden = tf.where(kept, hidden / 0.9, 0.0)
    answers = hidden @ parameters["answer/weights"] + parameters["answer/biases"]
    return (answers, new) if training else answers


def data(folder):
    """Points of three shells around the origin, far from the unit cube.

    Every fifth one is for the test.
    """
    random = np.random.default_rng(0)
    y = random.integers(0, 3, 6000)
    directions = random.normal(size=(6000, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    radius = y + 1 + random.normal(0, 0.15, 6000)
    x = (50 + 20 * directions * radius[:, np.newaxis]).astype("float32")
    test = np.arange(6000) % 5 == 0
    return {
        "x_train": x[~test],
        "y_train": y[~test],
        "x_test": x[test],
        "y_test": y[test],
        "labels": ["inner", "middle", "outer"],
    }
