"""Tests of the app alone, without a cluster: `pytest APP_NAME`."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np

app = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("app.py"))))


def test_the_model_answers_with_a_number_for_each_class():
    assert app.model((app.WORDS,), 2)(np.zeros((2, app.WORDS), "int32")).shape == (2, 2)


def test_training_lowers_the_loss():
    keras.utils.set_random_seed(0)
    texts, y = app.sentences(64)
    model = app.model((app.WORDS,), 2)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses = [model.train_on_batch(app.numbers(texts), y) for _ in range(30)]
    assert losses[-1] < losses[0]


def test_words_become_numbers_and_unknown_ones_0():
    known = app.vocabulary()
    x = app.numbers(["the film was good", "the unheard film"])
    assert list(x[0, :5]) == [known["the"], known["film"], known["was"], known["good"], 0]
    assert list(x[1, :3]) == [known["the"], 0, known["film"]]
    assert not app.numbers(["word " * 30])[0, app.WORDS :].size
