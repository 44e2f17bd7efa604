"""Constraints of Keras weights hold after each update, in every mode, on any shards."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.apps.app import App, AppError
from cluster.apps.app_network import AppNetwork
from cluster.jobs.job_network import network_for
from core.engine.devices import HOST
from core.ground.errors import UsageError
from core.ground.lazy import keras, tf
from core.inventory import TrainJob
from core.parameters import BLOCK, Layout, ParameterSpec
from ps_node.optimizers.adam import Adam
from ps_node.optimizers.sgd import MomentumSGD
from ps_node.shard import VectorState
from ps_node.shards import Header, ParameterShards
from tests.cluster.jobs.steps_here import job_of, of_app, recordings, trained
from tests.lazy import layers


def at_most_a_tenth(weight: Any) -> Any:
    return keras.ops.clip(weight, -0.1, 0.1)


def model(shape: tuple[int, ...], outputs: int) -> Any:
    inside = keras.Sequential(
        [layers.Dense(40, kernel_constraint="non_neg"), layers.LayerNormalization()]
    )
    recurrent = layers.LSTM(
        24, recurrent_constraint=keras.constraints.MaxNorm(0.3), bias_constraint=at_most_a_tenth
    )
    head = layers.Dense(outputs, kernel_constraint="unit_norm")
    return keras.Sequential([keras.Input(shape), layers.TimeDistributed(inside), recurrent, head])


def broken(found: AppNetwork, vector: Any) -> list[str]:
    """Names of the weights that are outside of their constraints."""
    values = found.layout.unpack(vector)
    bound = {slot.spec.name: slot.spec.constraint for slot in found.layout.constrained}
    within = {name: constraint(values[name]) for name, constraint in bound.items() if constraint}
    return [name for name in within if not np.allclose(within[name], values[name], atol=1e-6)]


@pytest.mark.parametrize("mode", ["single", "sync", "allreduce", "async", "local"])
def test_each_mode_keeps_them(mode: str, tmp_path: Path) -> None:
    found = of_app(model)
    assert len(broken(found, found.initial(0))) == 4
    after, losses = trained(found, job_of(mode), recordings(tmp_path))
    assert losses
    assert not broken(found, after)
    assert not np.array_equal(after, found.initial(0))


@pytest.mark.parametrize(
    ("optimizer", "of_keras"),
    [(MomentumSGD(0.0), "SGD"), (Adam(), "Adam")],
)
def test_an_update_is_keras_own_on_any_number_of_shards(optimizer: Any, of_keras: str) -> None:
    found = of_app(model)
    layout = found.layout
    vector = found.initial(0)
    gradient = np.random.default_rng(2).normal(size=layout.trained_size).astype(np.float32)
    theirs = found.filled(vector)  # type: ignore[attr-defined]
    named = layout.unpack(np.concatenate([gradient, vector[layout.trained_size :]]))
    names = [slot.spec.name for slot in layout.slots if slot.spec.trained]
    reference = getattr(keras.optimizers, of_keras)(0.05)
    reference.apply([tf.constant(named[name]) for name in names], theirs.trainable_variables)
    assert layout.blocks > 2
    results = []
    for count in (1, 2, layout.blocks):
        shards = ParameterShards(layout, VectorState(vector), optimizer, [HOST] * count)
        header = Header(tf.constant(0, tf.int64), tf.constant(0.05), tf.zeros([count], tf.int64))
        pushed = shards.push(tf.constant(gradient), tf.zeros([layout.statistics_size]), header)
        assert int(pushed.fresh) == count
        results.append(shards.read())
    values = layout.unpack(results[0])
    for name, value in zip(names, theirs.trainable_variables, strict=True):
        np.testing.assert_allclose(values[name], value, atol=1e-5, err_msg=name)
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def test_a_weight_with_a_constraint_is_never_cut() -> None:
    free = ParameterSpec("free", (5 * BLOCK,))
    bound = ParameterSpec("bound", (3 * BLOCK + 7,), constraint=tf.nn.relu)
    layout = Layout([free, bound, ParameterSpec("last", (100,))])
    assert layout.blocks == 6
    for count in range(1, 7):
        borders = [shard.trained for shard in layout.shards(count)]
        assert (borders[0][0], borders[-1][1]) == (0, layout.trained_size)
        assert not [start for start, _ in borders if 5 * BLOCK < start < 8 * BLOCK + 7]
        assert all(start < stop and not start % BLOCK for start, stop in borders)
    with pytest.raises(
        ValueError, match=r"into 7 shards .* constraint \(bound\) lies whole on one: use fewer"
    ):
        layout.shards(7)


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        (
            lambda w: w[:1],
            r"constraint of .*kernel answers with float32 of shape \(1, 4\): expected",
        ),
        (
            lambda w: tf.numpy_function(lambda v: v, [w], tf.float32),
            "constraint of .*kernel calls Python",
        ),
        (lambda w: w + tf.random.normal(w.shape), "constraint of .*kernel draws random"),
        (lambda w: 1 / 0, "failed: ZeroDivisionError"),
    ],
)
def test_one_that_cannot_be_applied_is_refused_by_name(constraint: Any, expected: str) -> None:
    def make(shape: tuple[int, ...], outputs: int) -> Any:
        dense = layers.Dense(4, kernel_constraint=constraint)
        return keras.Sequential([keras.Input(shape), layers.Flatten(), dense])

    with pytest.raises(AppError, match=expected):
        of_app(make)


def test_a_mean_over_epochs_is_refused_with_one(tmp_path: Path) -> None:
    app = App("bounds", Path("bounds.py"), None, {"model": model})
    job = TrainJob.model_validate({"averaging": {}, "validation_subjects": 0})
    with pytest.raises(UsageError, match=r"averaging: .* constraint of .*: set it to null"):
        network_for(job, recordings(tmp_path), app)
