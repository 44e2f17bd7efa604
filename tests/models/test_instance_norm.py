"""Windows normalized by themselves: what a network then no longer sees, and what it sees beside them."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from cluster.inventory.extensions import MODELS
from cluster.inventory.fields import RecurrentChoice
from cluster.models.instance_norm import InstanceNorm
from cluster.models.network import BuiltIn, Problem, build

SEED = tf.constant([0, 0], tf.int32)
SMALL: dict[str, dict[str, Any]] = {
    "thesis": {"hidden": 8},
    "residual": {"hidden": 8, "layers": 1},
    "dblstm": {"units": 8, "layers": 1},
    "conv-lstm": {"filters": 8, "hidden": 8, "layers": 1},
    "kth": {"hidden": 8, "layers": 1},
    "hybrid": {"filters": 8, "hidden": 8, "layers": 1, "statistics_hidden": 8},
}


def drawn(count: int = 3) -> Any:
    return np.random.default_rng(1).normal(0.5, 2.0, (count, 16, 6)).astype(np.float32)


def of(name: str, kind: str) -> BuiltIn:
    config = MODELS[name].Options.model_validate({"name": name, **SMALL[name], "instance_norm": kind})
    return build(config, window_steps=16, channels=6, classes=4)


def logits(network: BuiltIn, windows: Any) -> Any:
    named = network.unpack(tf.constant(network.initial(3)))
    return network.apply(named, tf.constant(windows), training=False, seed=SEED).logits.numpy()


def test_each_channel_of_each_window_has_mean_0_and_deviation_1() -> None:
    found = InstanceNorm("replace", Problem((16, 6), 4))(tf.constant(drawn())).numpy()
    np.testing.assert_allclose(found.mean(1), 0, atol=1e-5)
    np.testing.assert_allclose(found.std(1), 1, atol=0.02)
    beside = InstanceNorm("append", Problem((16, 6), 4))
    assert beside.problem.input_shape == (16, 12)
    np.testing.assert_array_equal(beside(tf.constant(drawn())).numpy(), np.concatenate([drawn(), found], 2))


def test_noise_of_a_channel_that_stands_still_is_not_blown_up() -> None:
    still = 3.0 + 1e-3 * drawn()
    found = InstanceNorm("replace", Problem((16, 6), 4))(tf.constant(still)).numpy()
    assert np.abs(found).max() < 0.1
    assert np.isfinite(InstanceNorm("replace", Problem((16, 6), 4))(tf.ones([1, 16, 6])).numpy()).all()


def test_every_recurrent_network_takes_it() -> None:
    recurrent = {name for name, found in MODELS.items() if issubclass(found.Options, RecurrentChoice)}
    assert recurrent == set(SMALL)


@pytest.mark.parametrize("name", SMALL)
def test_a_network_no_longer_sees_where_a_window_lies(name: str) -> None:
    windows = drawn()
    moved = windows + np.linspace(-2, 2, 6, dtype=np.float32)
    plain, own, both = (of(name, kind) for kind in ("none", "replace", "append"))
    assert np.abs(logits(plain, moved) - logits(plain, windows)).max() > 1e-3
    if name != "hybrid":  # whose statistics are of the windows as they are
        np.testing.assert_allclose(logits(own, moved), logits(own, windows), atol=1e-4)
    assert np.abs(logits(both, moved) - logits(both, windows)).max() > 1e-3
    assert own.layout.size == plain.layout.size < both.layout.size
    assert (plain.problem, both.describe()["channels"]) == (both.problem, 6), "its windows stay as they were"
