"""Precision over recall from counts, against scikit-learn's from every score."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import average_precision_score, precision_recall_curve

from cluster.models.curves import BINS, curves_of, score_counts
from cluster.models.objective import Classification


def drawn(count: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    targets = random.integers(0, 3, count).astype(np.int32)
    logits = random.normal(0, 1.5, (count, 3)) + 2.0 * np.eye(3)[targets]
    return targets, logits.astype(np.float32)


def test_average_precision_is_that_of_scikit_learn() -> None:
    targets, logits = drawn()
    shares = tf.nn.softmax(logits).numpy()
    counts = score_counts(targets, shares, np.ones(len(targets), np.float32), 3).numpy()
    assert counts.shape == (3, 2, BINS)
    assert counts.sum() == 3 * len(targets)
    for label, curve in enumerate(curves_of(counts)):
        assert curve is not None
        expected = average_precision_score(targets == label, shares[:, label])
        assert curve.average_precision == pytest.approx(expected, abs=0.01)
        precision, recall, _ = precision_recall_curve(targets == label, shares[:, label])
        at = np.interp([0.2, 0.5, 0.8], recall[::-1], precision[::-1])
        np.testing.assert_allclose(np.interp([0.2, 0.5, 0.8], curve.recall, curve.precision), at, atol=0.03)
        assert curve.recall[-1] == 1.0
        assert all(np.diff(curve.recall) >= 0)


def test_pieces_add_up_and_what_does_not_count_is_left_out() -> None:
    targets, logits = drawn(100)
    objective, ones = Classification(3), np.ones(100, np.float32)
    whole = objective.sums(tf.constant(targets), tf.constant(logits), tf.constant(ones))["scores"].numpy()
    pieces = [
        objective.sums(tf.constant(targets[part]), tf.constant(logits[part]), tf.constant(ones[part]))["scores"].numpy()
        for part in (slice(0, 30), slice(30, 100))
    ]
    np.testing.assert_array_equal(whole, sum(pieces))
    masked = objective.sums(tf.constant(targets), tf.constant(logits), tf.constant(np.r_[ones[:40], 0 * ones[40:]]))
    assert masked["scores"].numpy().sum() == 3 * 40


def test_a_class_that_never_comes_has_no_curve() -> None:
    counts = np.zeros((2, 2, BINS))
    counts[0, 1, -1] = counts[1, 0, 0] = 5
    first, second = curves_of(counts)
    assert first is not None
    assert first.average_precision == 1.0
    assert second is None


def test_positions_and_many_classes_have_none() -> None:
    counts = tf.ones([4])
    at_positions = Classification(3).sums(tf.zeros([4, 2], tf.int32), tf.zeros([4, 2, 3]), counts)
    many = Classification(50).sums(tf.zeros([4], tf.int32), tf.zeros([4, 50]), counts)
    assert "scores" not in {*at_positions, *many}
    assert Classification(3).curves({}) == []
