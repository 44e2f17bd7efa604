"""An app with a network of Keras's applications, for `experiments.export`.

MobileNetV2 on scikit-learn's digits.
"""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

SIZE = 32
"""Pixels of a side: the smallest images that MobileNetV2 takes."""


def model(input_shape: tuple[int, ...], outputs: int) -> Any:
    """MobileNetV2 of width 0.35 from random weights.

    Images (32, 32, 3) in, a number for each of ten digits out.
    """
    body = keras.applications.MobileNetV2(
        input_shape, weights=None, include_top=False, pooling="avg", alpha=0.35
    )
    for layer in body.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            # as there are few batches: the averages of 0.999 would stay what they begin with
            layer.momentum = 0.9
    image = keras.Input(input_shape)
    return keras.Model(image, keras.layers.Dense(outputs)(body(image)))


def data(folder: Path) -> dict[str, Any]:
    """The digits, four times as large and in three equal colours.

    Every fifth one is for the test.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = tf.image.resize(digits.images[..., np.newaxis] / 8 - 1, (SIZE, SIZE)).numpy()
    x = np.repeat(images, 3, axis=-1).astype("float32")
    test = np.arange(len(x)) % 5 == 0
    return {
        "x_train": x[~test],
        "y_train": digits.target[~test],
        "x_test": x[test],
        "y_test": digits.target[test],
        "labels": [str(name) for name in digits.target_names],
    }
