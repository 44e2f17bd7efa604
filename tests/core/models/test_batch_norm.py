"""Batch norm: a step's own statistics in training, the running ones in evaluation."""

import numpy as np
import pytest

from core.ground.lazy import tf
from core.models.layers import StepBatchNorm
from core.models.network import Network
from core.models.tensorflow_operations import TensorFlowOperations
from core.models.thesis import ThesisModel
from tests.core.models.yardstick import close, drawn, logits, passed, perturbed, small, windows

STEPS = 7
INPUTS = 3 * drawn(1, STEPS, 5, 6) + 2
MEAN, VARIANCE = np.linspace(-1, 1, STEPS), np.linspace(1, 4, STEPS)


@pytest.mark.parametrize("training", [True, False])
def test_each_step_is_normalized_by_its_own_or_by_the_running_statistics(training: bool) -> None:
    mean, variance = (INPUTS.mean((1, 2)), INPUTS.var((1, 2))) if training else (MEAN, VARIANCE)
    parameters = {
        "norm/scale": tf.constant([0.5]),
        "norm/shift": tf.constant([0.25]),
        "norm/mean": tf.constant(MEAN, tf.float32),
        "norm/variance": tf.constant(VARIANCE, tf.float32),
    }
    ops = TensorFlowOperations(parameters, training=training)
    outputs = StepBatchNorm("norm", STEPS)(ops, INPUTS)
    deviation = np.sqrt(variance + 1e-3)[:, None, None]
    close(outputs, (INPUTS - mean[:, None, None]) / deviation * 0.5 + 0.25)
    measured = {"norm/mean": mean, "norm/variance": variance} if training else {}
    close(ops.statistics, measured)


@pytest.fixture
def network() -> Network:
    return small(ThesisModel(hidden=8, n_stacked_layers=2, n_layers_in_highway=2, batch_norm=True))


def shapes(network: Network, trained: bool) -> dict[str, tuple[int, ...]]:
    specs = [slot.spec for slot in network.layout.slots]
    return {spec.name: spec.shape for spec in specs if spec.trained == trained}


def test_a_layer_has_one_scale_and_shift_and_a_tail_of_untrained_statistics(
    network: Network,
) -> None:
    norms = {name: shape for name, shape in shapes(network, True).items() if "/norm/" in name}
    assert norms == {
        f"layer{layer}/norm/{part}": (1,) for layer in range(2) for part in ("scale", "shift")
    }
    assert shapes(network, False) == {
        f"layer{layer}/norm/{part}": (10,) for layer in range(2) for part in ("mean", "variance")
    }
    assert network.layout.statistics_size == 2 * 2 * 10


def test_a_network_measures_exactly_its_untrained_parameters(network: Network) -> None:
    output = passed(network, windows(5, network), perturbed(network), training=True)
    found = {name: tuple(value.shape) for name, value in output.statistics.items()}
    assert found == shapes(network, False)


def test_in_evaluation_a_windows_logits_do_not_depend_on_its_batch(network: Network) -> None:
    """The reference evaluates with the test batch's own statistics: there they would."""
    batch = windows(5, network)
    together = logits(network, batch)
    close(logits(network, batch[:1]), together[:1], 5e-6)
    assert np.abs(logits(network, batch, training=True) - together).max() > 1e-3
