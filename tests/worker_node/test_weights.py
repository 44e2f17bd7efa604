"""Weights of classes and of examples: what they are, and what they do to the gradient."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cluster.data.dataset import CLASSIFICATION, REGRESSION, Array, Dataset
from cluster.errors import UsageError
from cluster.inventory import TrainJob
from cluster.models.network import build
from worker_node.gradient import BatchGradient, GradientOfBatch
from worker_node.weights import LossWeights, weighted

import tensorflow as tf  # isort: skip

LABELS = ("WALKING", "SITTING", "LAYING", "RUNNING")
CLASSES = np.array([0] * 7 + [1] * 2 + [2] * 3, np.int32)
BATCH, STEPS, CHANNELS = 12, 8, 3
ALL = np.arange(BATCH)


def data(
    folder: Path, labels: tuple[str, ...], classes: NDArray[np.integer], own: NDArray[np.floating] | None = None,
    task: str = CLASSIFICATION,
) -> Dataset:  # fmt: skip
    """A data set of which only the classes, (n,) or (n, positions), and the weights are there."""
    classes.astype("<i4").tofile(folder / "classes.i32")
    weights = None
    if own is not None:
        own.astype("<f4").tofile(folder / "weights.f32")
        weights = Array("weights.f32", "float32", ())
    return Dataset(
        "made", "made", "", folder, labels, len(classes), 0, "", Array("windows.f32", "float32", (STEPS, CHANNELS)),
        Array("classes.i32", "int32", classes.shape[1:]), task=task, weights=weights,
    )  # fmt: skip


def table_of(found: LossWeights) -> NDArray[np.float32]:
    assert found.table is not None
    return found.table


def test_balanced_is_scikit_learns(tmp_path: Path) -> None:
    """`n_samples / (n_classes * np.bincount(y))`, and the example of `compute_class_weight`'s page."""
    found = LossWeights.of("balanced", data(tmp_path, LABELS[:3], CLASSES), ALL)
    np.testing.assert_allclose(table_of(found), len(CLASSES) / (3 * np.bincount(CLASSES)), rtol=1e-6)
    assert found.mean == pytest.approx(1.0)
    documented = LossWeights.of("balanced", data(tmp_path, ("a", "b"), np.array([1, 1, 1, 1, 0, 0])), np.arange(6))
    np.testing.assert_array_equal(documented.table, [1.5, 0.75])


def test_only_the_rows_that_are_trained_on_are_counted(tmp_path: Path) -> None:
    found = LossWeights.of("balanced", data(tmp_path, LABELS[:3], CLASSES), np.array([0, 7, 8, 9]))
    np.testing.assert_allclose(table_of(found), [4 / 3, 4 / 6, 4 / 3], rtol=1e-6)


def test_a_class_without_training_examples_changes_nothing_of_the_others(tmp_path: Path) -> None:
    found = LossWeights.of("balanced", data(tmp_path, LABELS, CLASSES), ALL)
    np.testing.assert_allclose(table_of(found), [*(len(CLASSES) / (3 * np.bincount(CLASSES))), 1.0], rtol=1e-6)


def test_a_label_left_out_weighs_one_and_an_unknown_one_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    made = data(tmp_path, LABELS, CLASSES)
    found = LossWeights.of({"SITTING": 3.0}, made, ALL)
    np.testing.assert_array_equal(found.table, [1.0, 3.0, 1.0, 1.0])
    assert found.mean == pytest.approx((10 + 2 * 3.0) / 12)
    with pytest.raises(UsageError, match=r"class_weights: 'SITING' is not a label .* WALKING, SITTING, LAYING"):
        LossWeights.of({"SITING": 3.0}, made, ALL)


def test_without_classes_there_is_nothing_to_weigh_them_by(tmp_path: Path) -> None:
    made = data(tmp_path, LABELS, CLASSES, task=REGRESSION)
    assert LossWeights.of(None, made, ALL) == LossWeights()
    with pytest.raises(UsageError, match="class_weights: expected data with one class for each example"):
        LossWeights.of("balanced", made, ALL)


def test_the_mean_is_that_of_the_examples(tmp_path: Path) -> None:
    assert LossWeights.of(None, data(tmp_path, LABELS, CLASSES), ALL) == LossWeights(None, 1.0)
    own = np.linspace(0.0, 4.0, len(CLASSES))
    made = data(tmp_path, LABELS, CLASSES, own)
    assert LossWeights.of(None, made, ALL).mean == pytest.approx(2.0)
    both = LossWeights.of({"WALKING": 2.0}, made, ALL)
    assert both.mean == pytest.approx(float((np.where(CLASSES == 0, 2.0, 1.0) * own).mean()))


def test_positions_weigh_by_their_own_classes(tmp_path: Path) -> None:
    classes, own = np.array([[0, 0, 1], [0, 2, 2]]), np.array([2.0, 0.5])
    made = data(tmp_path, LABELS[:3], classes, own)
    found = LossWeights.of("balanced", made, np.arange(2))
    table = table_of(found)
    np.testing.assert_allclose(table, [6 / 9, 2.0, 1.0], rtol=1e-6)
    assert found.mean == pytest.approx(float((table[classes].mean(1) * own).mean()))
    losses = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    each = weighted(losses, tf.constant(classes), table, tf.constant(own, tf.float32))
    np.testing.assert_allclose(each, (losses.numpy() * table[classes]).mean(1) * own, rtol=1e-6)
    np.testing.assert_allclose(weighted(losses, tf.constant(classes), None, None), [2.0, 5.0])
    with pytest.raises(UsageError, match=r"class_weights: expected loss\(\) to answer with a value for each position"):
        weighted(losses[:, 0], tf.constant(classes), table, None)


def test_losses_stay_the_same_tensor_where_nothing_is_weighted() -> None:
    losses = tf.constant([1.0, 2.0])
    assert weighted(losses, tf.constant([0, 1]), None, None) is losses


def gradient(weights: LossWeights | None, own: Any = None, **given: Any) -> BatchGradient:
    job = TrainJob.model_validate(
        {"batch_size": BATCH, "model": {"name": "thesis", "hidden": 8, "n_stacked_layers": 1}, "clip_norm": None,
         "label_smoothing": 0.1, "micro_batches": 1, **given}
    )  # fmt: skip
    network = build(job.model, window_steps=STEPS, channels=CHANNELS, classes=len(LABELS))
    trained, statistics = np.split(network.initial(1), [network.layout.trained_size])
    batch = tf.constant(trained), tf.constant(statistics), tf.constant(windows()), tf.constant(CLASSES)
    return GradientOfBatch(network, job, weights)(*batch, tf.constant([0, 0]), own)


def windows() -> NDArray[np.float32]:
    return np.random.default_rng(2).normal(size=(BATCH, STEPS, CHANNELS)).astype(np.float32)


def by_hand(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float32]]:
    """Loss and gradient of sum(weight x cross-entropy) / batch, through the network's own logits alone."""
    job = TrainJob.model_validate({"model": {"name": "thesis", "hidden": 8, "n_stacked_layers": 1}})
    network = build(job.model, window_steps=STEPS, channels=CHANNELS, classes=len(LABELS))
    vector = tf.constant(network.initial(1))
    with tf.GradientTape() as tape:
        tape.watch(vector)
        output = network.apply(network.unpack(vector), tf.constant(windows()), training=True, seed=tf.constant([0, 0]))
        losses = network.objective.losses(tf.constant(CLASSES), output.logits, smoothing=0.1)
        loss = tf.reduce_sum(losses * weights.astype(np.float32)) / BATCH
    return float(loss), tape.gradient(loss, vector).numpy()[: network.layout.trained_size]


TABLE = LossWeights(np.array([0.25, 5.0, 1.0, 1.0], np.float32))
OWN = np.linspace(0.5, 3.0, BATCH)


@pytest.mark.parametrize("pieces", [1, 5])
@pytest.mark.parametrize(
    ("weights", "own"), [(TABLE, None), (None, OWN), (TABLE, OWN)], ids=["classes", "examples", "both"]
)
def test_the_gradient_is_that_of_the_weighted_sum(
    weights: LossWeights | None, own: NDArray[np.float64] | None, pieces: int
) -> None:
    each = np.ones(BATCH) if weights is None or weights.table is None else weights.table[CLASSES].astype(np.float64)
    each = each if own is None else each * own
    loss, expected = by_hand(each)
    found = gradient(weights, None if own is None else tf.constant(own, tf.float32), micro_batches=pieces)
    assert float(found.loss) == pytest.approx(loss, rel=1e-5)
    np.testing.assert_allclose(found.gradient, expected, rtol=1e-4, atol=1e-6)
    plain = gradient(None, micro_batches=pieces)
    assert not np.allclose(found.gradient, plain.gradient, rtol=1e-2, atol=1e-4), "or the weights did nothing"
    assert float(found.hits) == float(plain.hits)


def test_weights_of_one_change_no_bit() -> None:
    plain = gradient(None, micro_batches=3)
    ones = LossWeights(np.ones(len(LABELS), np.float32))
    found = gradient(ones, tf.ones([BATCH]), micro_batches=3)
    np.testing.assert_array_equal(found.gradient, plain.gradient)
