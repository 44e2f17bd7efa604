"""Networks and augmentation over any set of sensors: which channels are vectors is stated."""

from collections.abc import Callable

import numpy as np
import pytest

from core.ground.lazy import tf
from core.inventory.fields import Choice
from core.inventory.training_sections import AugmentSettings
from core.models.native import NativeNetwork, SlotsOfBatch
from core.models.network import Problem, build
from core.models.spectral import SpectralModel
from tests.core.models.test_augmentation import augmented as by_tensorflow
from tests.core.models.test_networks import EVERY
from tests.core.models.test_spectral import recorded, statistics
from tests.core.models.yardstick import Vector, close, logits
from tests.tables import table
from worker_node.gradient import augmented

SETS = table("core/models/tables", "sensors")
MIXED = Problem((32, 8), 4, vectors=(1, 5))
AXES = [1, 2, 3, 5, 6, 7]
OTHERS = [0, 4]
MOMENTS = np.stack([np.linspace(-1, 1, 8), np.linspace(1, 3, 8)]).astype(np.float32)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("config", EVERY, ids=lambda config: config.name)
def test_every_network_answers_alike_in_tensorflow_and_the_library(
    name: str, config: Choice
) -> None:
    steps, channels, vectors = SETS[name]
    network = build(
        config, window_steps=steps, channels=channels, classes=3, vectors=tuple(vectors)
    )
    given = recorded(4, steps, channels)
    vector = network.initial(0)
    size = network.layout.trained_size
    answers = NativeNetwork(network).answers(vector[:size], vector[size:], tf.constant(given))
    close(answers.numpy(), logits(network, given), 1e-3, scaled=True)


def test_the_statistics_of_a_vector_are_its_own_wherever_it_stands() -> None:
    given = recorded(3, 128, 8)
    found = statistics(given, (1, 5))
    alone = statistics(given[..., AXES])
    # Means of eight channels and two lengths; correlations and directions stand at the end.
    close(found[:, [*AXES, 8, 9]], alone[:, :8])
    close(found[:, -12:], alone[:, -12:])
    turn, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))
    turned = given.copy()
    turned[..., 1:4] = given[..., 1:4] @ turn
    close(statistics(turned, (1, 5))[:, [0, 4, 8, 9]], found[:, [0, 4, 8, 9]], 1e-4)


def test_a_sensor_has_one_scale_and_another_channel_its_own() -> None:
    network = build(SpectralModel(hidden=8), window_steps=16, channels=8, classes=3, vectors=(1, 5))
    deviation = np.array([7, 1, 2, 4, 9, 2, 2, 2], np.float32)
    moments = np.stack([np.zeros(8, np.float32), deviation])
    vector = network.measured(network.initial(0), moments, [recorded(4, 16, 8)])
    scale = network.layout.unpack(vector)["statistics/scale"]
    size = np.sqrt(21 / 3)
    close(scale, np.array([1, 1 / size, 2 / size, 4 / size, 1, 1, 1, 1]))


def by_library(windows: Vector, problem: Problem, moments: Vector, **asked: float) -> Vector:
    """Windows in their own units in, and out, as the library turns them."""
    cut = SlotsOfBatch(len(windows), 1, 0, 1, tf.constant((1, 2), tf.int32))
    standard = tf.constant((windows - moments[0]) / moments[1])
    settings = AugmentSettings(**asked)
    found = augmented(problem, settings, standard, tf.constant(moments), cut)
    raw: Vector = found.numpy() * moments[1] + moments[0]
    return raw


@pytest.mark.parametrize("changed", [by_library, by_tensorflow])
def test_vectors_are_turned_as_if_they_stood_alone_and_other_channels_are_not(
    changed: Callable[..., Vector],
) -> None:
    windows = recorded(20, 32, 8)
    found = changed(windows, problem=MIXED, moments=MOMENTS, rotation_degrees=90.0)
    close(found[..., OTHERS], windows[..., OTHERS])
    alone = changed(
        windows[..., AXES],
        problem=Problem((32, 6), 4),
        moments=MOMENTS[:, AXES],
        rotation_degrees=90.0,
    )
    np.testing.assert_array_equal(found[..., AXES], alone)
    assert np.abs(alone - windows[..., AXES]).max() > 0.5
    lengths = [np.linalg.norm(x[..., 1:4], axis=2) for x in (found, windows)]
    close(lengths[0], lengths[1], 1e-4)
