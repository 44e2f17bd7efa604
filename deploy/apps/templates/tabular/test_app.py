"""Tests of the app alone, without a cluster: `pytest APP_NAME`."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np

app = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("app.py"))))


def test_the_model_answers_with_one_number():
    assert app.model((app.COLUMNS,), 1)(np.zeros((2, app.COLUMNS), "float32")).shape == (2, 1)


def test_training_lowers_the_loss():
    keras.utils.set_random_seed(0)
    x, y = app.rows(64)
    model = app.model((app.COLUMNS,), 1)
    model.compile("adam", "mean_squared_error")
    losses = [model.train_on_batch(x, y) for _ in range(20)]
    assert losses[-1] < losses[0]


def test_columns_have_mean_0_and_deviation_1():
    found = app.data(Path())
    np.testing.assert_allclose(found["x_train"].mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(found["y_train"].std(), 1, rtol=1e-5)
    assert len(found["x_test"]) == len(found["y_test"]) == len(found["x_train"]) // 4
