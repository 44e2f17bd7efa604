"""Handwritten digits with a small residual network.

Convolutions, batch normalization, dropout, shifted images.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import layers


def model(input_shape, outputs):
    """Two residual stages; images (8, 8, 1) in, a number for each of ten digits out."""
    image = keras.Input(input_shape)
    x = layers.Conv2D(32, 3, padding="same", use_bias=False)(image)
    x = layers.Activation("relu")(layers.BatchNormalization(momentum=0.9)(x))
    for filters in (32, 64):
        shortcut = layers.Conv2D(filters, 1)(x)
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.Activation("relu")(layers.BatchNormalization(momentum=0.9)(x))
        x = layers.Conv2D(filters, 3, padding="same")(x)
        x = layers.MaxPooling2D()(layers.Add()([x, shortcut]))
    x = layers.Dropout(0.3)(layers.Flatten()(x))
    return keras.Model(image, layers.Dense(outputs)(x))


def augment(x, y, seed):
    """Each image moved by up to one pixel each way.

    `seed` decides where, so that runs are repeatable.
    """
    count = tf.shape(x)[0]
    moved = tf.random.stateless_uniform([count, 2], seed, 0, 3, tf.int32)
    padded = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
    rows = moved[:, :1] + tf.range(x.shape[1])
    columns = moved[:, 1:] + tf.range(x.shape[2])
    return tf.gather(
        tf.gather(padded, rows, axis=1, batch_dims=1), columns, axis=2, batch_dims=1
    ), y


def data(folder):
    """The 1,797 images of scikit-learn's `load_digits`; every fifth one is for the test."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    x = (digits.images / 16).astype("float32")[..., np.newaxis]
    test = np.arange(len(x)) % 5 == 0
    return {
        "x_train": x[~test],
        "y_train": digits.target[~test],
        "x_test": x[test],
        "y_test": digits.target[test],
        "labels": [str(name) for name in digits.target_names],
    }
