"""Losses against Keras's, figures against scikit-learn's, summed over batches."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from core.ground.errors import UsageError
from core.ground.lazy import keras, tf
from core.models.objective import Objective
from core.models.tasks import LARGEST_MATRIX, Classification, Multilabel, Regression
from tests.lazy import sklearn_metrics as metrics

COUNT = 70
BATCH = 32
RANDOM = np.random.default_rng(3)


def summed(
    objective: Objective, targets: NDArray[Any], answers: NDArray[Any]
) -> dict[str, NDArray[np.float64]]:
    """As an evaluation adds up: chunks of one size, rows that fill the last one count 0."""
    total: dict[str, Any] = {}
    for start in range(0, COUNT, BATCH):
        rows = np.resize(np.arange(start, min(start + BATCH, COUNT)), BATCH)
        counts = (np.arange(BATCH) < COUNT - start).astype(np.float32)
        sums = objective.sums(*map(tf.constant, (targets[rows], answers[rows], counts)))
        for name, value in sums.items():
            total[name] = total.get(name, 0.0) + value.numpy().astype(np.float64)
    return total


def figures(objective: Objective, targets: Any, answers: Any) -> dict[str, Any]:
    """The figures by name, those of the task alone too."""
    found = objective.figures(summed(objective, targets, answers))
    return {**found, **found["others"]}


def compare(found: dict[str, Any], within: float, **expected: float) -> None:
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=within)


@pytest.mark.parametrize("classes", [4, LARGEST_MATRIX + 44])
def test_a_classification_with_and_without_a_matrix(classes: int) -> None:
    objective = Classification(classes)
    targets = RANDOM.integers(0, 4, COUNT).astype(np.int32)
    answers = RANDOM.normal(size=(COUNT, classes)).astype(np.float32)
    answers[:, :4] += 3.0
    predicted = answers.argmax(1)
    averaged = {"labels": np.unique(targets), "average": "macro", "zero_division": 0}
    entropy = keras.losses.sparse_categorical_crossentropy(targets, answers, from_logits=True)
    found = figures(objective, targets, answers)
    compare(
        found,
        1e-6,
        accuracy=metrics.accuracy_score(targets, predicted),
        f1_weighted=metrics.f1_score(targets, predicted, average="weighted", zero_division=0),
        recall_macro=metrics.recall_score(targets, predicted, **averaged),
    )
    compare(found, 1e-5, loss=float(np.mean(entropy)))
    sums = summed(objective, targets, answers)
    if classes == 4:
        matrix = metrics.confusion_matrix(targets, predicted)
        np.testing.assert_array_equal(objective.confusion(sums), matrix)
        assert objective.by_label(sums) == []
    else:
        assert objective.confusion(sums).shape == (0, 0)
        right = sum(label[0] for label in objective.by_label(sums))
        assert right == (targets == predicted).sum()


def test_a_class_at_each_position() -> None:
    objective = Classification(3)
    targets = RANDOM.integers(0, 3, (COUNT, 5)).astype(np.int32)
    answers = RANDOM.normal(size=(COUNT, 5, 3)).astype(np.float32)
    predicted = answers.argmax(-1)
    entropy = keras.losses.sparse_categorical_crossentropy(targets, answers, from_logits=True)
    found = figures(objective, targets, answers)
    compare(found, 1e-6, accuracy=(predicted == targets).mean())
    compare(found, 1e-5, loss=float(np.mean(entropy)))
    matrix = metrics.confusion_matrix(targets.ravel(), predicted.ravel())
    np.testing.assert_array_equal(objective.confusion(summed(objective, targets, answers)), matrix)
    losses = objective.losses_at(tf.constant(targets), tf.constant(answers))
    assert losses.shape == (COUNT, 5)


@pytest.mark.parametrize("probabilities", [False, True])
def test_several_labels(probabilities: bool) -> None:
    targets = RANDOM.integers(0, 2, (COUNT, 4)).astype(np.uint8)
    logits = RANDOM.normal(size=(COUNT, 4)).astype(np.float32)
    answers = 1 / (1 + np.exp(-logits)) if probabilities else logits
    said = logits > 0
    entropy = keras.losses.binary_crossentropy(targets.astype(np.float32), logits, from_logits=True)
    found = figures(Multilabel(4, probabilities=probabilities), targets, answers)
    compare(
        found,
        1e-6,
        accuracy=metrics.accuracy_score(targets, said),
        f1_macro=metrics.f1_score(targets, said, average="macro"),
        label_accuracy=(targets == said).mean(),
    )
    compare(found, 1e-4, loss=float(np.mean(entropy)))


@pytest.mark.parametrize("shape", [(), (3,)])
def test_numbers(shape: tuple[int, ...]) -> None:
    outputs = int(np.prod(shape, dtype=int))
    targets = (1e4 + RANDOM.normal(size=(COUNT, *shape))).astype(np.float32)
    flat = targets.reshape(COUNT, outputs)
    answers = (flat + 0.3 * RANDOM.normal(size=flat.shape)).astype(np.float32)
    found = figures(Regression(outputs), targets, answers)
    rmse = metrics.root_mean_squared_error(flat.ravel(), answers.ravel())
    compare(found, 1e-5, mae=metrics.mean_absolute_error(flat, answers), rmse=rmse)
    mse = float(np.mean((flat - answers) ** 2))
    compare(found, 1e-4, r2=metrics.r2_score(flat, answers), loss=mse)
    assert "accuracy" not in found


def test_a_loss_and_metrics_of_ones_own_are_means_over_the_examples() -> None:
    objective = Regression(
        1,
        loss=lambda y, found: tf.abs(y - found[:, 0]),
        metrics=lambda y, found: {"bias": found[:, 0] - y},
    )
    found = figures(objective, np.zeros(COUNT, np.float32), np.full((COUNT, 1), 0.5, np.float32))
    compare(found, 1e-6, loss=0.5, bias=0.5)


def test_a_loss_that_is_a_mean_already_is_refused() -> None:
    objective = Regression(1, loss=lambda y, found: tf.reduce_mean(found))
    with pytest.raises(UsageError, match="expected one value for each example"):
        objective.losses(tf.zeros([3]), tf.zeros([3, 1]))


def test_metrics_without_names_are_refused() -> None:
    objective = Regression(1, metrics=lambda _, answers: answers)
    numbers = np.zeros((COUNT, 1), np.float32)
    with pytest.raises(UsageError, match=r"got .*Tensor: return a dict"):
        summed(objective, numbers, numbers)
