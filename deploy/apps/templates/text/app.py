"""Sorts short sentences into praise and complaint.

They are put together here: replace `sentences` by your own.
"""

import keras
import numpy as np
from keras import layers

WORDS = 12
"""Words of a sentence: shorter ones are filled up with 0, longer ones are cut."""

LABELS = ("complaint", "praise")
THINGS = ("film", "meal", "room", "book", "train", "concert", "coffee", "service")
GOOD = ("good", "great", "lovely", "excellent", "fine")
BAD = ("bad", "awful", "poor", "terrible", "dull")


def model(input_shape, outputs):
    """The network.

    Numbers of words go in; a number for each class comes out, and the largest one is the answer.

    `input_shape` is that of one example of `data`, here (WORDS,); `outputs` is the number of
    classes, here 2.
    """
    words = keras.Input(input_shape, dtype="int32")
    x = layers.Embedding(len(vocabulary()) + 1, 16)(words)
    x = layers.Conv1D(32, 3, padding="same", activation="relu")(x)
    x = layers.GlobalMaxPooling1D()(x)
    x = layers.Dropout(0.2)(x)
    return keras.Model(words, layers.Dense(outputs)(x))


def data(folder):
    """The examples: x holds the words of each sentence as numbers, y its class.

    Every fifth one is for the test.

    `folder` is what `--data` names, else the folder of this file.
    """
    texts, y = sentences(2000)
    x = numbers(texts)
    test = np.arange(len(x)) % 5 == 0
    return {
        "x_train": x[~test],
        "y_train": y[~test],
        "x_test": x[test],
        "y_test": y[test],
        "labels": LABELS,
    }


def sentences(count):
    """Sentences such as `the film was not good at all`, and whether each is praise."""
    random = np.random.default_rng(0)
    texts, y = [], random.integers(0, 2, count)
    for praise in y:
        negated = random.random() < 0.5
        kind = random.choice(GOOD if praise != negated else BAD)
        words = [
            "the",
            random.choice(THINGS),
            "was",
            "not" if negated else random.choice(["very", "really"]),
            kind,
        ]
        texts.append(" ".join(words + random.choice(["at all", "this time", ""]).split()))
    return texts, y


def vocabulary():
    """The number of each word, from 1; 0 is no word.

    With texts of your own: the words of the training texts.
    """
    words = {
        *THINGS,
        *GOOD,
        *BAD,
        "the",
        "was",
        "not",
        "very",
        "really",
        "at",
        "all",
        "this",
        "time",
    }
    return {word: number for number, word in enumerate(sorted(words), start=1)}


def numbers(texts):
    """Shape (texts, WORDS)."""
    known = vocabulary()
    x = np.zeros((len(texts), WORDS), "int32")
    for row, text in zip(x, texts, strict=True):
        found = [known.get(word, 0) for word in text.split()][:WORDS]
        row[: len(found)] = found
    return x
