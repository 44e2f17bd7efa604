"""Predicts the next character of this project's documentation."""

import keras
import numpy as np
from keras import layers

STEPS = 40
"""Characters that the network sees."""
STRIDE = 3
"""From the start of one window to that of the next."""
ALPHABET = "\n abcdefghijklmnopqrstuvwxyz0123456789.,:;-_/`'\"()[]{}|=<>*#$&+!?%@~^\\"
OTHER = len(ALPHABET)
"""The class of every other character."""


def model(input_shape, outputs):
    """Embedding, two causal convolutions and a GRU.

    Characters (STEPS,) in, a number for each next character out.
    """
    window = keras.Input(input_shape, dtype="int32")
    x = layers.Embedding(outputs, 32)(window)
    for rate in (1, 2):
        x = layers.Conv1D(64, 3, padding="causal", dilation_rate=rate, activation="relu")(x)
    x = layers.GRU(96)(x)
    return keras.Model(window, layers.Dense(outputs)(x))


def data(folder):
    """Return windows of every page; the last tenth of each page is for the test.

    `folder` holds the .md files that `--data` names. Without the flag it is this file's folder, and
    the pages of the project's `docs/` are read. `groups` are the pages.
    """
    pages = sorted(folder.glob("*.md"))
    if (folder / "app.py").is_file():
        pages = sorted((folder / "../../docs").glob("*.md"))
    if not pages:
        raise FileNotFoundError(
            f"expected .md files, found none for {folder}: name a folder of them with --data"
        )
    train, test, groups = [], [], []
    for number, page in enumerate(pages):
        codes = encoded(page.read_text(encoding="utf-8"))
        cut = len(codes) * 9 // 10
        train.append(windows(codes[:cut]))
        test.append(windows(codes[cut:]))
        groups.append(np.full(len(train[-1]), number))
    train, test = np.concatenate(train), np.concatenate(test)
    return {
        "x_train": train[:, :-1],
        "y_train": train[:, -1],
        "x_test": test[:, :-1],
        "y_test": test[:, -1],
        "groups": np.concatenate(groups),
        "labels": [repr(letter) for letter in ALPHABET] + ["other"],
    }


def encoded(text):
    """The class of each character, uint8 (characters,)."""
    codes = {letter: number for number, letter in enumerate(ALPHABET)}
    return np.array([codes.get(letter, OTHER) for letter in text.lower()], "uint8")


def windows(codes):
    """Stretches of STEPS characters and the one that follows, (n, STEPS + 1).

    None of a text that is too short.
    """
    if len(codes) <= STEPS:
        return np.zeros((0, STEPS + 1), "int32")
    return np.lib.stride_tricks.sliding_window_view(codes, STEPS + 1)[::STRIDE].astype("int32")
