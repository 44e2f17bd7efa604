"""Tests of the app alone, without a cluster: `pytest APP_NAME`."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest

app = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("app.py"))))


def test_the_model_answers_with_a_number_for_each_digit():
    model = app.model((8, 8, 1), 10)
    assert model(np.zeros((2, 8, 8, 1), "float32")).shape == (2, 10)


def test_training_lowers_the_loss():
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    x, y = random.random((32, 8, 8, 1), "float32"), random.integers(0, 10, 32)
    model = app.model((8, 8, 1), 10)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses = [model.train_on_batch(x, y) for _ in range(30)]
    assert losses[-1] < losses[0]


def test_the_data_are_images_of_ten_digits():
    pytest.importorskip("sklearn", reason="pip install -r requirements.txt")
    dataset = app.data(Path())
    assert dataset["x_train"].shape[1:] == dataset["x_test"].shape[1:] == (8, 8, 1)
    assert set(dataset["y_train"]) == set(dataset["y_test"]) == set(range(10))
