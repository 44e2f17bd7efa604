"""Losses against Keras's, figures against scikit-learn's, summed over batches of which the last is filled up."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray
from sklearn import metrics

from cluster.errors import UsageError
from cluster.models.objective import LARGEST_MATRIX, Classification, Multilabel, Objective, Regression

COUNT, BATCH = 70, 32
RANDOM = np.random.default_rng(3)


def summed(objective: Objective, targets: NDArray[Any], answers: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
    """As an evaluation adds up: chunks of one size, rows that fill the last one count 0."""
    total: dict[str, Any] = {}
    for start in range(0, COUNT, BATCH):
        rows = np.resize(np.arange(start, min(start + BATCH, COUNT)), BATCH)
        counts = (np.arange(BATCH) < COUNT - start).astype(np.float32)
        sums = objective.sums(tf.constant(targets[rows]), tf.constant(answers[rows]), tf.constant(counts))
        for name, value in sums.items():
            total[name] = total.get(name, 0.0) + value.numpy().astype(np.float64)
    return total


@pytest.mark.parametrize("classes", [4, LARGEST_MATRIX + 44])
def test_a_classification_with_and_without_a_matrix(classes: int) -> None:
    objective = Classification(classes)
    targets = RANDOM.integers(0, 4, COUNT).astype(np.int32)
    answers = RANDOM.normal(size=(COUNT, classes)).astype(np.float32)
    answers[:, :4] += 3.0
    sums = summed(objective, targets, answers)
    found, predicted = objective.figures(sums), answers.argmax(1)
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(targets, predicted))
    assert found["f1_weighted"] == pytest.approx(
        metrics.f1_score(targets, predicted, average="weighted", zero_division=0)
    )
    assert found["recall_macro"] == pytest.approx(
        metrics.recall_score(targets, predicted, labels=np.unique(targets), average="macro", zero_division=0)
    )
    entropy = keras.losses.sparse_categorical_crossentropy(targets, answers, from_logits=True)
    assert found["loss"] == pytest.approx(float(np.mean(entropy)), rel=1e-5)
    if classes <= LARGEST_MATRIX:
        np.testing.assert_array_equal(objective.confusion(sums), metrics.confusion_matrix(targets, predicted))
        assert objective.by_label(sums) == []
    else:
        assert objective.confusion(sums).shape == (0, 0)
        assert sum(right for right, _, _ in objective.by_label(sums)) == (targets == predicted).sum()


def test_a_class_at_each_position() -> None:
    objective = Classification(3)
    targets, answers = RANDOM.integers(0, 3, (COUNT, 5)).astype(np.int32), RANDOM.normal(size=(COUNT, 5, 3))
    sums = summed(objective, targets, answers.astype(np.float32))
    found = objective.figures(sums)
    assert found["accuracy"] == pytest.approx((answers.argmax(-1) == targets).mean())
    assert objective.confusion(sums).sum() == COUNT * 5
    np.testing.assert_array_equal(
        objective.confusion(sums), metrics.confusion_matrix(targets.ravel(), answers.argmax(-1).ravel())
    )
    entropy = keras.losses.sparse_categorical_crossentropy(targets, answers, from_logits=True)
    assert found["loss"] == pytest.approx(float(np.mean(entropy)), rel=1e-5)
    assert objective.losses_at(tf.constant(targets), tf.constant(answers, tf.float32)).shape == (COUNT, 5)


@pytest.mark.parametrize("probabilities", [False, True])
def test_several_labels(probabilities: bool) -> None:
    objective = Multilabel(4, probabilities=probabilities)
    targets = RANDOM.integers(0, 2, (COUNT, 4)).astype(np.uint8)
    logits = RANDOM.normal(size=(COUNT, 4)).astype(np.float32)
    answers = 1 / (1 + np.exp(-logits)) if probabilities else logits
    found, said = objective.figures(summed(objective, targets, answers)), logits > 0
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(targets, said))
    assert found["f1_macro"] == pytest.approx(metrics.f1_score(targets, said, average="macro"))
    assert found["others"]["label_accuracy"] == pytest.approx((targets == said).mean())
    entropy = keras.losses.binary_crossentropy(targets.astype(np.float32), logits, from_logits=True)
    assert found["loss"] == pytest.approx(float(np.mean(entropy)), rel=1e-4)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_numbers(shape: tuple[int, ...]) -> None:
    outputs = int(np.prod(shape, dtype=int))
    targets = (1e4 + RANDOM.normal(size=(COUNT, *shape))).astype(np.float32)
    answers = (targets + 0.3 * RANDOM.normal(size=(COUNT, *shape))).astype(np.float32).reshape(COUNT, outputs)
    objective = Regression(outputs)
    found = objective.figures(summed(objective, targets, answers))
    flat = targets.reshape(COUNT, outputs)
    assert found["others"]["mae"] == pytest.approx(metrics.mean_absolute_error(flat, answers), rel=1e-5)
    assert found["others"]["rmse"] == pytest.approx(
        metrics.root_mean_squared_error(flat.ravel(), answers.ravel()), rel=1e-5
    )
    assert found["others"]["r2"] == pytest.approx(metrics.r2_score(flat, answers), rel=1e-4)
    assert found["loss"] == pytest.approx(float(np.mean((flat - answers) ** 2)), rel=1e-4)
    assert "accuracy" not in found


def test_a_loss_and_metrics_of_ones_own_are_means_over_the_examples() -> None:
    objective = Regression(
        1, loss=lambda y, found: tf.abs(y - found[:, 0]), metrics=lambda y, found: {"bias": found[:, 0] - y}
    )
    targets, answers = np.zeros(COUNT, np.float32), np.full((COUNT, 1), 0.5, np.float32)
    found = objective.figures(summed(objective, targets, answers))
    assert found["loss"] == pytest.approx(0.5)
    assert found["others"]["bias"] == pytest.approx(0.5)


def test_a_loss_that_is_a_mean_already_is_refused() -> None:
    objective = Regression(1, loss=lambda y, found: tf.reduce_mean(found))
    with pytest.raises(UsageError, match="expected one value for each example"):
        objective.losses(tf.zeros([3]), tf.zeros([3, 1]))
