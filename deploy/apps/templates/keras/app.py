"""Recognizes handwritten digits: scikit-learn's 1,797 images of 8 x 8 grey values."""

import keras
import numpy as np
from keras import layers


def model(input_shape, outputs):
    """The network.

    An image goes in; a number for each digit comes out, and the largest one is the answer.

    `input_shape` is that of one example of `data`, here (8, 8, 1); `outputs` is the number of
    classes, here 10.
    """
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(128, activation="relu"),
            layers.Dense(outputs),
        ]
    )


def data(folder):
    """The examples: x holds images, y the digit of each. The test set is for the last figure alone.

    `folder` is what `--data` names, else the folder of this file. These images need neither.
    """
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
