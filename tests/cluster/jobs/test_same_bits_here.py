"""All exact modes end with the same bits, whatever constants a network multiplies with."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cluster.apps.app import AppError
from cluster.apps.keras_network import KerasNetwork
from core.data import Dataset
from core.data.dataset import Array
from core.ground.lazy import tf
from core.models.operations import compiled_by_xla
from tests.cluster.apps.looping import dropout_in_a_cell_and_behind_it, normalization_in_a_cell
from tests.cluster.jobs.steps_here import (
    EVERY_ROW,
    PROBLEM,
    ROWS,
    Scaled,
    agreed,
    job_of,
    of_app,
    trained,
)


def model(*shape: Any) -> Any:
    from tests.cluster.apps import recurrent  # which loads Keras

    return recurrent.model(*shape)


@pytest.mark.parametrize("make", [dropout_in_a_cell_and_behind_it, normalization_in_a_cell, model])
def test_the_modes_agree_on_a_model_of_keras(data: Dataset, make: object) -> None:
    agreed(of_app(make), data)


def test_xla_refuses_values_of_a_loop_by_name() -> None:
    model = of_app(normalization_in_a_cell)
    assert isinstance(model, KerasNetwork)
    vector = model.unpack(tf.constant(model.initial(0)))
    windows = tf.zeros([2, *PROBLEM.input_shape])
    with compiled_by_xla(), pytest.raises(AppError, match=r"moving_.* inside a loop .*kernel"):
        model.apply(vector, windows, training=True, seed=tf.zeros([2], tf.int32))


def test_the_modes_agree_on_weighted_losses(data: Dataset) -> None:
    network = Scaled(PROBLEM)
    own = np.linspace(0.1, 2.0, ROWS).astype("<f4")
    own.tofile(data.folder / "weights.f32")
    weighted = replace(data, weights=Array("weights.f32", "float32", ()))
    expected, losses = agreed(network, weighted, class_weights={"a": 0.3, "d": 3.7})
    unweighted, unweighted_losses = trained(network, job_of("single"), data)
    assert not np.array_equal(unweighted, expected)
    # The first update's loss is of the same parameters, so the weights alone differ: about log 4 an
    # example.
    rows = np.random.default_rng(0).permutation(ROWS)[:20]
    mean = float((own * np.array([0.3, 1.0, 1.0, 3.7])[EVERY_ROW % 4])[rows].mean())
    assert losses[0] / unweighted_losses[0] == pytest.approx(mean, rel=0.2)
    assert mean > 1.3, "or that says nothing"
