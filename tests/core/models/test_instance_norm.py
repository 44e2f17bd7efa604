"""Windows normalized by themselves.

What a network then no longer sees, and what it sees beside them.
"""

from typing import Any

import numpy as np
import pytest

from core.ground.lazy import tf
from core.inventory.extensions import MODELS
from core.inventory.fields import RecurrentChoice
from core.models.layers import InstanceNorm
from core.models.network import BuiltIn, Problem
from core.models.tensorflow_operations import TensorFlowOperations
from tests.core.models.yardstick import close, drawn, logits, small
from tests.tables import table

SMALL = table("core/models/tables", "recurrent")
WINDOWS = 2 * drawn(1, 3, 16, 6) + np.float32(0.5)
PROBLEM = Problem((16, 6), 4)


def normalized(windows: Any, kind: str = "replace") -> Any:
    return InstanceNorm(kind, PROBLEM)(TensorFlowOperations({}), tf.constant(windows)).numpy()


def test_each_channel_of_each_window_has_mean_0_and_deviation_1() -> None:
    found = normalized(WINDOWS)
    close(found.mean(1), np.zeros((3, 6)))
    close(found.std(1), np.ones((3, 6)), 0.01)
    assert InstanceNorm("append", PROBLEM).problem.input_shape == (16, 12)
    beside = normalized(WINDOWS, "append")
    np.testing.assert_array_equal(beside, np.concatenate([WINDOWS, found], 2))


def test_noise_of_a_channel_that_stands_still_is_not_blown_up() -> None:
    assert np.abs(normalized(3.0 + 1e-3 * WINDOWS)).max() < 0.1
    assert np.isfinite(normalized(np.ones((1, 16, 6), np.float32))).all()


def test_every_recurrent_network_takes_it() -> None:
    recurrent = {
        name for name, found in MODELS.items() if issubclass(found.Options, RecurrentChoice)
    }
    assert recurrent == set(SMALL)


def of(name: str, kind: str) -> BuiltIn:
    options = {"name": name, **SMALL[name], "instance_norm": kind}
    return small(MODELS[name].Options.model_validate(options), 16, 6, 4)


@pytest.mark.parametrize("name", SMALL)
def test_a_network_no_longer_sees_where_a_window_lies(name: str) -> None:
    moved = WINDOWS + np.linspace(-2, 2, 6, dtype=np.float32)
    plain, own, both = (of(name, kind) for kind in ("none", "replace", "append"))
    for network in (plain, both):
        assert np.abs(logits(network, moved) - logits(network, WINDOWS)).max() > 1e-3
    if name != "hybrid":  # whose statistics are of the windows as they are
        close(logits(own, moved), logits(own, WINDOWS), 5e-5)
    assert own.layout.size == plain.layout.size < both.layout.size
    # Its windows stay as they were.
    assert (both.problem, both.describe()["channels"]) == (plain.problem, 6)
