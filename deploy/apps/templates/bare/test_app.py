"""Tests of the app alone, without a cluster: `pytest APP_NAME`."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import tensorflow as tf

app = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("app.py"))))
SEED = [3, 1]


def tensors(seed=0):
    return {name: tf.constant(values, tf.float32) for name, values in app.init(seed).items()}


def test_the_same_seed_gives_the_same_parameters():
    first, again, other = app.init(0), app.init(0), app.init(1)
    assert all((first[name] == again[name]).all() for name in first)
    assert (first["first/weights"] != other["first/weights"]).any()


def test_an_answer_has_a_number_for_each_class():
    assert app.forward(tensors(), {}, tf.zeros([5, 2]), False, SEED).shape == (5, 2)


def test_a_step_against_the_gradient_lowers_the_loss():
    x, y = app.spirals(200)
    parameters = tensors()

    def loss():
        answers = app.forward(parameters, {}, tf.constant(x), True, SEED)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, answers))

    with tf.GradientTape() as tape:
        tape.watch(parameters)
        before = loss()
    gradients = tape.gradient(before, parameters)
    parameters = {name: values - 0.05 * gradients[name] for name, values in parameters.items()}
    assert np.isfinite(before)
    assert loss() < before
