"""The gradient of a batch: its pieces, L2, the clip, and what is not finite."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from core.engine.codecs.fp32 import Fp32
from core.ground.lazy import tf
from core.models.native import RowsOfSet
from core.models.network import Network
from core.models.tasks import Classification
from ps_node.arithmetic import TensorFlowArithmetic
from ps_node.nodes import Nodes
from tests.worker_node.batches import (
    CHANNELS,
    CLASSES,
    STEPS,
    gradient_of,
    job,
    network_of,
    start,
    windows,
)
from worker_node.gradient import GradientOfBatch, LabelledExamples


@pytest.mark.parametrize("pieces", [2, 3, 4, 10])
def test_slots_add_up_to_the_whole_batch(pieces: int) -> None:
    whole = gradient_of(job(label_smoothing=0.05))
    cut = gradient_of(job(label_smoothing=0.05, slots=pieces))
    assert_allclose(cut.gradient, whole.gradient, rtol=2e-4, atol=2e-7)
    assert float(cut.loss) == pytest.approx(float(whole.loss), rel=1e-5)
    assert float(cut.hits) == float(whole.hits)
    assert float(cut.norm) == pytest.approx(float(whole.norm), rel=1e-5)


def test_l2_pulls_at_decayed_parameters_alone() -> None:
    layout = network_of(job()).layout
    pulled = gradient_of(job(l2=0.5)).gradient - gradient_of(job()).gradient
    decayed = np.concatenate([np.full(slot.spec.size, slot.spec.decayed) for slot in layout.slots])
    trained, _ = start(network_of(job()))
    assert_allclose(pulled, np.where(decayed, 0.5 * trained, 0.0), atol=1e-6)
    assert set(decayed) == {True, False}


def test_clip_cuts_long_gradients_to_length_and_leaves_short_ones() -> None:
    free = gradient_of(job())
    norm = float(free.norm)
    cut = gradient_of(job(clip_norm=norm / 4))
    assert np.linalg.norm(cut.gradient) == pytest.approx(norm / 4, rel=1e-5)
    assert_allclose(cut.gradient * 4, free.gradient, rtol=1e-4, atol=1e-7)
    assert_array_equal(gradient_of(job(clip_norm=norm * 4)).gradient, free.gradient)
    assert float(cut.norm) == pytest.approx(norm)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_what_is_not_finite_changes_nothing_and_is_told(batch_norm: bool) -> None:
    broken = np.zeros((10, STEPS, CHANNELS), np.float32)
    broken[3, 2, 1] = np.nan
    training = job(batch_norm, clip_norm=1.0)
    found = gradient_of(training, broken)
    assert not np.isfinite(found.loss) or not np.isfinite(found.norm)
    assert not np.any(found.gradient)
    assert_array_equal(found.statistics, start(network_of(training))[1])


def test_statistics_are_the_mean_over_slots_of_unequal_size() -> None:
    training = job(batch_norm=True, slots=3)
    network = network_of(training)
    named = network.unpack(tf.constant(network.initial(1)))
    untrained = [slot.spec.name for slot in network.layout.slots if not slot.spec.trained]
    expected = np.zeros(network.layout.statistics_size)
    for part in np.split(windows(10), [3, 6]):
        measured = applied(network, named, part).statistics
        flat = np.concatenate([measured[name].numpy().ravel() for name in untrained])
        expected = expected + flat * len(part) / 10
    assert_allclose(gradient_of(training).statistics, expected, rtol=1e-4, atol=1e-6)


def applied(network: Network, named: Any, inputs: Any, seed: tuple[int, int] = (0, 0)) -> Any:
    return network.apply(named, tf.constant(inputs), training=True, seed=tf.constant(seed))


def test_cross_entropy_by_hand() -> None:
    logits = np.array([[2.0, 0.0, -1.0]], np.float32)
    shares = np.exp(logits[0]) / np.exp(logits[0]).sum()
    labels = np.array([0.1 / 3 + 0.9, 0.1 / 3, 0.1 / 3])
    found = Classification(3).losses(tf.constant([0]), tf.constant(logits), smoothing=0.1)
    assert float(found[0]) == pytest.approx(float(-(labels * np.log(shares)).sum()), rel=1e-6)


@pytest.mark.parametrize(
    ("augment", "again"),
    [
        (None, True),
        ({"rotation_degrees": 0, "time_warp": 0}, True),
        ({"rotation_degrees": 30}, False),
        ({"time_warp": 0.3}, False),
    ],
)
def test_a_window_is_measured_again_only_where_it_changes(
    augment: dict[str, float] | None, again: bool
) -> None:
    model = {"name": "spectral", "hidden": 0}
    training = job(model=model, augment=augment, arithmetic="library")
    network = network_of(training)
    trained, statistics = map(tf.constant, start(network))
    moments = tf.constant([[0.5] * CHANNELS, [2.0] * CHANNELS])
    rows = RowsOfSet(tf.range(10), [0], 10)
    fitted = GradientOfBatch(network, training).of_fit(moments, rows)
    labels = tf.range(10) % CLASSES

    def gradient(gradient_of: GradientOfBatch, inputs: Any, batch: int) -> Any:
        seed = tf.constant([0, batch])
        return gradient_of(trained, statistics, inputs, labels, seed).gradient.numpy()

    gradients = [gradient(fitted, windows(10), batch) for batch in range(2)]
    assert np.array_equal(*gradients) == again
    assert np.array_equal(gradient(fitted, 2 * windows(10), 1), gradients[1]) == again
    alone = GradientOfBatch(network, training).of_fit(moments)
    assert_array_equal(gradient(alone, windows(10), 0), gradients[0])


@pytest.mark.parametrize(
    ("knows", "pieces", "traced"), [(False, 2, {None}), (True, 2, {5}), (True, 3, {None})]
)
def test_a_network_that_wants_it_is_traced_for_the_size_of_equal_slots(
    monkeypatch: pytest.MonkeyPatch, knows: bool, pieces: int, traced: set[int | None]
) -> None:
    training = job(slots=pieces)
    network = network_of(training)
    sizes = set[int | None]()
    own = network.apply

    def seen(parameters: Any, inputs: Any, **given: Any) -> Any:
        sizes.add(inputs.shape[0])
        return own(parameters, inputs, **given)

    monkeypatch.setattr(network, "apply", seen)
    monkeypatch.setattr(network, "knows_batch", knows)
    gradient = GradientOfBatch(network, training)
    trained, statistics = map(tf.constant, start(network))
    nodes = Nodes(Fp32(), len(trained), TensorFlowArithmetic())

    @tf.function(autograph=False)
    def computed(inputs: Any, classes: Any, parts: Any) -> Any:
        examples = LabelledExamples(inputs, classes, parts)
        seed = tf.constant([0, 0])
        return gradient.sums((trained, statistics), examples, (0, pieces), seed, nodes).losses

    computed.get_concrete_function(
        tf.TensorSpec([None, STEPS, CHANNELS]),
        tf.TensorSpec([None], tf.int32),
        tf.TensorSpec([pieces], tf.int32),
    )
    assert sizes == traced
