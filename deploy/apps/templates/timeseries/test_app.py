"""Tests of the app alone, without a cluster: `pytest APP_NAME`."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np

app = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("app.py"))))


def test_the_model_answers_with_one_number():
    assert app.model((app.STEPS, 1), 1)(np.zeros((2, app.STEPS, 1), "float32")).shape == (2, 1)


def test_training_lowers_the_loss():
    keras.utils.set_random_seed(0)
    x, y, _ = app.stretches(app.series(1, 100))
    model = app.model((app.STEPS, 1), 1)
    model.compile("adam", "mean_squared_error")
    losses = [model.train_on_batch(x, y) for _ in range(15)]
    assert losses[-1] < losses[0]


def test_a_stretch_is_followed_by_its_target():
    values = app.series(2, app.STEPS + 3)
    x, y, groups = app.stretches(values)
    assert list(groups) == [0, 0, 0, 1, 1, 1]
    np.testing.assert_allclose(x[1, :, 0], values[0, 1 : app.STEPS + 1], rtol=1e-6)
    np.testing.assert_allclose(y[1], values[0, app.STEPS + 1], rtol=1e-6)
