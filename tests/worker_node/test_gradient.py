"""The gradient of a batch: its pieces, L2, the clip, and what is not finite."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cluster.inventory import TrainJob
from cluster.models.network import Network, build
from cluster.models.objective import Classification
from ps_node.steps import block_norm
from worker_node.gradient import BatchGradient, GradientOfBatch

import tensorflow as tf  # isort: skip

BATCH, STEPS, CHANNELS, CLASSES = 10, 8, 3, 4


def job(**given: Any) -> TrainJob:
    model = {"name": "thesis", "hidden": 8, "n_stacked_layers": 1, "batch_norm": given.pop("batch_norm", False)}
    plain = {"clip_norm": None, "label_smoothing": 0.0, "micro_batches": 1}
    return TrainJob.model_validate({"batch_size": BATCH, "model": model, **plain, **given})


def network_of(settings: TrainJob) -> Network:
    return build(settings.model, window_steps=STEPS, channels=CHANNELS, classes=CLASSES)


def gradient_of(settings: TrainJob, windows: NDArray[np.float32] | None = None) -> tuple[Network, BatchGradient]:
    network = network_of(settings)
    vector = network.initial(1)
    trained, statistics = np.split(vector, [network.layout.trained_size])
    random = np.random.default_rng(2)
    drawn = random.normal(size=(BATCH, STEPS, CHANNELS)).astype(np.float32)
    classes = tf.constant(np.arange(BATCH) % CLASSES, tf.int32)
    inputs = tf.constant(drawn if windows is None else windows)
    found = GradientOfBatch(network, settings)(
        tf.constant(trained), tf.constant(statistics), inputs, classes, tf.constant([0, 0])
    )
    return network, found


@pytest.mark.parametrize("pieces", [2, 3, 4, 10])
def test_micro_batches_add_up_to_the_whole_batch(pieces: int) -> None:
    _, whole = gradient_of(job(label_smoothing=0.05))
    _, cut = gradient_of(job(label_smoothing=0.05, micro_batches=pieces))
    np.testing.assert_allclose(cut.gradient, whole.gradient, rtol=2e-4, atol=2e-7)
    assert float(cut.loss) == pytest.approx(float(whole.loss), rel=1e-5)
    assert float(cut.hits) == float(whole.hits)
    assert float(cut.norm) == pytest.approx(float(whole.norm), rel=1e-5)


def test_l2_pulls_at_decayed_parameters_alone() -> None:
    network, plain = gradient_of(job())
    _, pulled = gradient_of(job(l2=0.5))
    difference = (pulled.gradient - plain.gradient).numpy()
    vector = network.initial(1)
    for slot in network.layout.slots:
        part = slice(slot.offset, slot.offset + slot.spec.size)
        expected = 0.5 * vector[part] if slot.spec.decayed else np.zeros(slot.spec.size)
        np.testing.assert_allclose(difference[part], expected, atol=1e-6, err_msg=slot.spec.name)
    assert {slot.spec.decayed for slot in network.layout.slots} == {True, False}


def test_clip_cuts_long_gradients_to_length_and_leaves_short_ones() -> None:
    _, free = gradient_of(job())
    norm = float(free.norm)
    _, cut = gradient_of(job(clip_norm=norm / 4))
    _, left = gradient_of(job(clip_norm=norm * 4))
    assert np.linalg.norm(cut.gradient) == pytest.approx(norm / 4, rel=1e-5)
    np.testing.assert_allclose(cut.gradient * 4, free.gradient, rtol=1e-4, atol=1e-7)
    np.testing.assert_array_equal(left.gradient, free.gradient)
    assert float(cut.norm) == pytest.approx(norm)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_what_is_not_finite_changes_nothing_and_is_told(batch_norm: bool) -> None:
    windows = np.zeros((BATCH, STEPS, CHANNELS), np.float32)
    windows[3, 2, 1] = np.nan
    network, found = gradient_of(job(batch_norm=batch_norm, clip_norm=1.0), windows)
    assert not np.isfinite(found.loss) or not np.isfinite(found.norm)
    assert not np.any(found.gradient)
    np.testing.assert_array_equal(found.statistics, network.initial(1)[network.layout.trained_size :])


def test_statistics_are_the_mean_over_micro_batches_of_unequal_size() -> None:
    settings = job(batch_norm=True, micro_batches=3)
    network, found = gradient_of(settings)
    assert found.statistics.shape == (network.layout.statistics_size,)
    drawn = np.random.default_rng(2).normal(size=(BATCH, STEPS, CHANNELS)).astype(np.float32)
    parts = np.split(drawn, [3, 6])
    named = network.unpack(tf.constant(network.initial(1)))
    untrained = [slot.spec.name for slot in network.layout.slots if not slot.spec.trained]
    expected = np.zeros(network.layout.statistics_size)
    for part in parts:
        measured = network.apply(named, tf.constant(part), training=True, seed=tf.zeros([2], tf.int32)).statistics
        flat = np.concatenate([measured[name].numpy().ravel() for name in untrained])
        expected = expected + flat * len(part) / BATCH
    np.testing.assert_allclose(found.statistics, expected, rtol=1e-4, atol=1e-6)


def test_dropout_differs_between_micro_batches() -> None:
    same = np.tile(np.random.default_rng(3).normal(size=(1, STEPS, CHANNELS)), (BATCH, 1, 1)).astype(np.float32)
    settings = job(keep_probability=0.5, micro_batches=10)
    network = build(
        settings.model, window_steps=STEPS, channels=CHANNELS, classes=CLASSES, keep_probability=0.5
    )  # fmt: skip
    seeds = [tf.constant([0, k]) for k in range(2)]
    named = network.unpack(tf.constant(network.initial(1)))
    first, second = (network.apply(named, tf.constant(same[:1]), training=True, seed=seed).logits for seed in seeds)
    assert not np.allclose(first, second)


@pytest.mark.parametrize("size", [1, 1023, 1024, 1025, 5000])
def test_block_norm_equals_numpy(size: int) -> None:
    vector = np.random.default_rng(size).normal(size=size).astype(np.float32)
    expected = np.linalg.norm(vector.astype(np.float64))
    assert float(block_norm(tf.constant(vector), size)) == pytest.approx(expected, rel=1e-6)


def test_cross_entropy_by_hand() -> None:
    logits = np.array([[2.0, 0.0, -1.0]], np.float32)
    shares = np.exp(logits[0]) / np.exp(logits[0]).sum()
    labels = np.array([0.1 / 3 + 0.9, 0.1 / 3, 0.1 / 3])
    found = Classification(3).losses(tf.constant([0]), tf.constant(logits), smoothing=0.1)
    assert float(found[0]) == pytest.approx(float(-(labels * np.log(shares)).sum()), rel=1e-6)


@pytest.mark.parametrize(
    ("knows", "pieces", "traced"), [(False, 2, {None}), (True, 2, {BATCH // 2}), (True, 3, {None})]
)
def test_a_network_that_wants_it_is_traced_for_the_size_of_equal_micro_batches(
    monkeypatch: pytest.MonkeyPatch, knows: bool, pieces: int, traced: set[int | None]
) -> None:
    settings, sizes = job(micro_batches=pieces), set[int | None]()
    network = network_of(settings)
    own = network.apply

    def seen(parameters: Any, windows: Any, **given: Any) -> Any:
        sizes.add(windows.shape[0])
        return own(parameters, windows, **given)

    monkeypatch.setattr(network, "apply", seen)
    monkeypatch.setattr(network, "knows_batch", knows)
    gradient_of = GradientOfBatch(network, settings)
    trained, statistics = np.split(network.initial(1), [network.layout.trained_size])

    @tf.function(autograph=False)
    def computed(windows: Any, classes: Any, parts: Any) -> Any:
        values, seed = (tf.constant(trained), tf.constant(statistics)), tf.constant([0, 0])
        return [piece.loss for piece in gradient_of.pieces(*values, windows, classes, parts, pieces, seed)]

    computed.get_concrete_function(
        tf.TensorSpec([None, STEPS, CHANNELS]), tf.TensorSpec([None], tf.int32), tf.TensorSpec([pieces], tf.int32)
    )
    assert sizes == traced
