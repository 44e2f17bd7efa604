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
    table = app.draw(64).astype("float32")
    model = app.model((app.COLUMNS,), 1)
    model.compile("adam", "mean_squared_error")
    losses = [model.train_on_batch(table[:, :-1], table[:, -1]) for _ in range(20)]
    assert losses[-1] < losses[0]


def test_columns_of_a_table_have_mean_0_and_deviation_1(tmp_path):
    table = app.draw(100)
    np.savetxt(tmp_path / "mine.csv", table, delimiter=",", header="names of columns")
    dataset = app.data(tmp_path / "mine.csv")
    np.testing.assert_allclose(dataset["x_train"].mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(dataset["y_train"].std(), 1, rtol=1e-5)
    order = np.argsort(table[::5, 0])
    assert (np.argsort(dataset["x_test"][:, 0]) == order).all()
