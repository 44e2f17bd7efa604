"""Weights of classes and of examples: what they are, and what they do to the gradient."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from core.data.dataset import CLASSIFICATION, REGRESSION, Array, Dataset
from core.ground.errors import UsageError
from core.ground.lazy import tf
from tests.worker_node.batches import CHANNELS, STEPS, gradient_of, job, network_of, windows
from worker_node.gradient import BatchGradient
from worker_node.recordings import LossWeights, weighted

LABELS = ("WALKING", "SITTING", "LAYING", "RUNNING")
CLASSES = np.array([0] * 7 + [1] * 2 + [2] * 3, np.int32)
BATCH = 12
ALL = np.arange(BATCH)
FOUR = np.linspace(0.0, 4.0, BATCH)


def data(
    folder: Path,
    labels: tuple[str, ...],
    classes: NDArray[np.integer],
    own: NDArray[np.floating] | None = None,
    task: str = CLASSIFICATION,
) -> Dataset:
    """A data set of which only the classes, (n,) or (n, positions), and the weights are there."""
    classes.astype("<i4").tofile(folder / "classes.i32")
    weights = None
    if own is not None:
        own.astype("<f4").tofile(folder / "weights.f32")
        weights = Array("weights.f32", "float32", ())
    return Dataset(
        "made",
        "made",
        "",
        folder,
        labels,
        len(classes),
        0,
        "",
        Array("windows.f32", "float32", (STEPS, CHANNELS)),
        Array("classes.i32", "int32", classes.shape[1:]),
        task=task,
        weights=weights,
    )


def table_of(found: LossWeights) -> NDArray[np.float32]:
    assert found.table is not None
    return found.table


BALANCED = BATCH / (3 * np.bincount(CLASSES))
"""scikit-learn's `n_samples / (n_classes * np.bincount(y))`."""
DOCUMENTED = np.array([1, 1, 1, 1, 0, 0])


@pytest.mark.parametrize(
    ("labels", "classes", "rows", "expected"),
    [
        (LABELS[:3], CLASSES, ALL, BALANCED),
        (("a", "b"), DOCUMENTED, np.arange(6), [1.5, 0.75]),
        (LABELS[:3], CLASSES, np.array([0, 7, 8, 9]), [4 / 3, 4 / 6, 4 / 3]),
        (LABELS, CLASSES, ALL, [*BALANCED, 1.0]),
    ],
    ids=["scikit-learn's", "its documentation's", "trained rows alone", "a class without examples"],
)
def test_balanced_weighs_by_the_rows_that_are_trained_on(
    tmp_path: Path,
    labels: tuple[str, ...],
    classes: NDArray[np.integer],
    rows: NDArray[np.integer],
    expected: Any,
) -> None:
    found = LossWeights.from_setting("balanced", data(tmp_path, labels, classes), rows)
    assert_allclose(table_of(found), expected, rtol=1e-6)
    assert found.mean == pytest.approx(1.0)


def test_a_label_left_out_weighs_one(tmp_path: Path) -> None:
    found = LossWeights.from_setting({"SITTING": 3.0}, data(tmp_path, LABELS, CLASSES), ALL)
    assert table_of(found).tolist() == [1.0, 3.0, 1.0, 1.0]
    assert found.mean == pytest.approx((10 + 2 * 3.0) / 12)


@pytest.mark.parametrize(
    ("weights", "task", "words"),
    [
        ({"SITING": 3.0}, CLASSIFICATION, "'SITING' is not a label .* WALKING, SITTING, LAYING"),
        ("balanced", REGRESSION, "expected data with one class for each example"),
    ],
)
def test_an_unknown_label_and_data_without_classes_are_refused(
    tmp_path: Path, weights: Any, task: str, words: str
) -> None:
    with pytest.raises(UsageError, match=f"class_weights: {words}"):
        LossWeights.from_setting(weights, data(tmp_path, LABELS, CLASSES, task=task), ALL)


@pytest.mark.parametrize(
    ("weights", "own", "task", "mean"),
    [
        (None, None, CLASSIFICATION, 1.0),
        (None, None, REGRESSION, 1.0),
        (None, FOUR, CLASSIFICATION, 2.0),
        ({"WALKING": 2.0}, FOUR, CLASSIFICATION, (np.where(CLASSES == 0, 2.0, 1.0) * FOUR).mean()),
    ],
)
def test_the_mean_is_that_of_the_examples(
    tmp_path: Path, weights: Any, own: NDArray[np.floating] | None, task: str, mean: float
) -> None:
    found = LossWeights.from_setting(weights, data(tmp_path, LABELS, CLASSES, own, task), ALL)
    assert found.mean == pytest.approx(mean)
    assert (found.table is None) == (weights is None)


def test_positions_weigh_by_their_own_classes(tmp_path: Path) -> None:
    classes = np.array([[0, 0, 1], [0, 2, 2]])
    own = np.array([2.0, 0.5])
    made = data(tmp_path, LABELS[:3], classes, own)
    found = LossWeights.from_setting("balanced", made, np.arange(2))
    table = table_of(found)
    assert_allclose(table, [6 / 9, 2.0, 1.0], rtol=1e-6)
    assert found.mean == pytest.approx(float((table[classes].mean(1) * own).mean()))
    losses = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    each = weighted(losses, tf.constant(classes), table, tf.constant(own, tf.float32))
    assert_allclose(each, (losses.numpy() * table[classes]).mean(1) * own, rtol=1e-6)
    assert_allclose(weighted(losses, tf.constant(classes), None, None), [2.0, 5.0])
    with pytest.raises(
        UsageError,
        match=r"class_weights: expected loss\(\) to answer with a value for each position",
    ):
        weighted(losses[:, 0], tf.constant(classes), table, None)


def test_losses_stay_the_same_tensor_where_nothing_is_weighted() -> None:
    losses = tf.constant([1.0, 2.0])
    assert weighted(losses, tf.constant([0, 1]), None, None) is losses


def by_hand(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float32]]:
    """Loss and gradient of sum(weight x cross-entropy) / batch."""
    network = network_of(job())
    vector = tf.constant(network.initial(1))
    with tf.GradientTape() as tape:
        tape.watch(vector)
        named = network.unpack(vector)
        inputs = tf.constant(windows(BATCH))
        output = network.apply(named, inputs, training=True, seed=tf.constant([0, 0]))
        losses = network.objective.losses(tf.constant(CLASSES), output.logits, smoothing=0.1)
        loss = tf.reduce_sum(losses * weights.astype(np.float32)) / BATCH
    return float(loss), tape.gradient(loss, vector).numpy()[: network.layout.trained_size]


def gradient(weights: LossWeights | None, own: Any, pieces: int) -> BatchGradient:
    training = job(batch_size=BATCH, label_smoothing=0.1, slots=pieces)
    examples = None if own is None else tf.constant(own, tf.float32)
    return gradient_of(training, None, CLASSES, weights, examples)


TABLE = np.array([0.25, 5.0, 1.0, 1.0], np.float32)
OWN = np.linspace(0.5, 3.0, BATCH)


@pytest.mark.parametrize("pieces", [1, 5])
@pytest.mark.parametrize(
    ("weights", "own", "each"),
    [
        (LossWeights(TABLE), None, TABLE[CLASSES]),
        (None, OWN, OWN),
        (LossWeights(TABLE), OWN, TABLE[CLASSES] * OWN),
    ],
    ids=["classes", "examples", "both"],
)
def test_the_gradient_is_that_of_the_weighted_sum(
    weights: LossWeights | None,
    own: NDArray[np.float64] | None,
    each: NDArray[np.float64],
    pieces: int,
) -> None:
    loss, expected = by_hand(each)
    found = gradient(weights, own, pieces)
    assert float(found.loss) == pytest.approx(loss, rel=1e-5)
    assert_allclose(found.gradient, expected, rtol=1e-4, atol=1e-6)
    plain = gradient(None, None, pieces)
    assert not np.allclose(found.gradient, plain.gradient, rtol=1e-2, atol=1e-4), (
        "or the weights did nothing"
    )
    assert float(found.hits) == float(plain.hits)


def test_weights_of_one_change_no_bit() -> None:
    ones = LossWeights(np.ones(len(LABELS), np.float32))
    found = gradient(ones, np.ones(BATCH), 3)
    assert_array_equal(found.gradient, gradient(None, None, 3).gradient)
