"""An app with a class at each position, a frozen layer, bfloat16 layers, and weights."""

from pathlib import Path
from typing import Any

import numpy as np

WORDS = 30
POSITIONS = 12
GROUPS = 8
LABELS = ("rare", "word", "name")


def model(input_shape: tuple[int, ...], outputs: int) -> Any:
    """Words in, a number for each class of each position out."""
    import keras

    inputs = keras.Input(input_shape, dtype="int32")
    table = keras.layers.Embedding(WORDS, 16, name="table")
    hidden = table(inputs)
    table.trainable = False
    hidden = keras.layers.Conv1D(32, 3, padding="same", activation="relu", dtype="mixed_bfloat16")(
        hidden
    )
    hidden = keras.layers.Dropout(0.1)(hidden)
    return keras.Model(inputs, keras.layers.Dense(outputs, dtype="float32")(hidden))


def data(folder: Path) -> dict[str, Any]:
    """A word's class follows from it alone, and from dice in half of the training examples.

    The dice are in groups of their own, from GROUPS on, so that no validation need hold them out.
    """
    del folder
    random = np.random.default_rng(4)
    x = random.integers(0, WORDS, (520, POSITIONS)).astype("int32")
    y = np.digitize(x, [2, 14])
    dice = np.arange(400) >= 200
    y[:400][dice] = random.integers(0, len(LABELS), (200, POSITIONS))
    groups = np.where(dice, GROUPS, 0) + np.arange(400) % GROUPS
    weights = np.where(dice, 0.0, 1.5)
    return {
        "x_train": x[:400],
        "y_train": y[:400],
        "x_test": x[400:],
        "y_test": y[400:],
        "labels": LABELS,
        "groups": groups,
        "weights": weights,
    }
