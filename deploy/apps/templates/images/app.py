"""Classifies images.

Put yours into `images/CLASS/*.png` (or .jpg), or into `images/train/CLASS` and `images/test/CLASS`;
without that folder the app draws shapes itself.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

SIZE = 32
"""Images are resized to SIZE x SIZE."""

SHAPES = ("circle", "cross", "square")


def model(input_shape, outputs):
    """The network.

    An image goes in; a number for each class comes out, and the largest one is the answer.

    `input_shape` is that of one example of `data`, here (SIZE, SIZE, 3); `outputs` is the number of
    classes.
    """
    image = keras.Input(input_shape)
    x = layers.Rescaling(1 / 255)(image)
    for filters in (16, 32, 64):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization(momentum=0.9)(x)
        x = layers.MaxPooling2D()(layers.Activation("relu")(x))
    x = layers.Dropout(0.2)(layers.GlobalAveragePooling2D()(x))
    return keras.Model(image, layers.Dense(outputs)(x))


def augment(x, y, seed):
    """What training sees instead of a batch: some images mirrored.

    `seed` decides which: runs are repeatable.
    """
    mirrored = tf.random.stateless_uniform([tf.shape(x)[0], 1, 1, 1], seed) < 0.5
    return tf.where(mirrored, tf.reverse(x, [2]), x), y


def data(folder):
    """The examples: x holds images with values from 0 to 255, y their classes.

    Every fifth one is for the test, or those below a folder `test` or `Testing`.

    `folder` is what `--data` names, here one with a folder for each class, else that of this file.
    """
    is_app = (folder / "app.py").is_file()
    images = folder / "images" if is_app else folder
    x, y, labels = draw(3000) if is_app and not images.is_dir() else read(images)
    test = np.arange(len(x)) % 5 == 0
    if {label.lower()[:4] for label in labels} == {"trai", "test"}:
        # These two are no classes: each has a folder for each class.
        (*of_test, labels), (*of_train, trained) = (
            read(images / part) for part in sorted(labels, key=str.lower)
        )
        if labels != trained:
            raise ValueError(f"{images}: give both parts the classes {sorted({*labels, *trained})}")
        x, y = map(np.concatenate, zip(of_test, of_train, strict=True))
        test = np.arange(len(x)) < len(of_test[0])
    return {
        "x_train": x[~test],
        "y_train": y[~test],
        "x_test": x[test],
        "y_test": y[test],
        "labels": labels,
    }


def read(images):
    """All images below a folder for each class, in a random order that is always the same.

    `CLASS/*.wav` come from `keras.utils.audio_dataset_from_directory(sounds, batch_size=None,
    output_sequence_length=16000, seed=0)` in the same way.
    """
    dataset = keras.utils.image_dataset_from_directory(
        images, image_size=(SIZE, SIZE), batch_size=None, seed=0, verbose=False
    )
    x, y = map(np.stack, zip(*dataset.as_numpy_iterator(), strict=True))
    return x.round().astype("uint8"), y, dataset.class_names


def draw(count):
    """Shapes of random size, place and colour on noise."""
    random = np.random.default_rng(0)
    y = np.arange(count) % len(SHAPES)
    x = random.integers(0, 120, (count, SIZE, SIZE, 3))
    rows, columns = np.mgrid[:SIZE, :SIZE]
    for image, kind in zip(x, y, strict=True):
        radius = random.uniform(5, 10)
        down, right = (
            abs(axis - random.uniform(radius, SIZE - radius)) for axis in (rows, columns)
        )
        inside = [
            down**2 + right**2 < radius**2,
            (np.minimum(down, right) < radius / 4) & (np.maximum(down, right) < radius),
            np.maximum(down, right) < radius * 0.9,
        ]
        image[inside[kind]] = random.integers(130, 256, 3)
    return x.astype("uint8"), y, list(SHAPES)
