"""Precision over recall from counts, against scikit-learn's from every score."""

from typing import Any

import numpy as np
import pytest

from core.ground.lazy import tf
from core.models.objective import BINS, curves_of, score_counts
from core.models.tasks import Classification
from tests.core.models.yardstick import close
from tests.lazy import sklearn_metrics

RANDOM = np.random.default_rng(0)
TARGETS = RANDOM.integers(0, 3, 3000).astype(np.int32)
LOGITS = (RANDOM.normal(0, 1.5, (3000, 3)) + 2.0 * np.eye(3)[TARGETS]).astype(np.float32)


def test_average_precision_is_that_of_scikit_learn() -> None:
    shares = tf.nn.softmax(LOGITS).numpy()
    counts = score_counts(TARGETS, shares, np.ones(3000, np.float32), 3).numpy()
    assert counts.shape == (3, 2, BINS)
    assert counts.sum() == 3 * 3000
    at = [0.2, 0.5, 0.8]
    for label, curve in enumerate(curves_of(counts)):
        assert curve is not None
        expected = sklearn_metrics.average_precision_score(label == TARGETS, shares[:, label])
        assert curve.average_precision == pytest.approx(expected, abs=0.01)
        precision, recall, _ = sklearn_metrics.precision_recall_curve(
            label == TARGETS, shares[:, label]
        )
        found = np.interp(at, curve.recall, curve.precision)
        close(found, np.interp(at, recall[::-1], precision[::-1]), 0.015)
        assert curve.recall[-1] == 1.0
        assert all(np.diff(curve.recall) >= 0)


def scores(part: slice, counts: Any) -> Any:
    given = (TARGETS[part], LOGITS[part], np.float32(counts))
    return Classification(3).sums(*map(tf.constant, given))["scores"].numpy()


def test_pieces_add_up_and_what_does_not_count_is_left_out() -> None:
    pieces = scores(slice(30), [1] * 30) + scores(slice(30, 100), [1] * 70)
    np.testing.assert_array_equal(scores(slice(100), [1] * 100), pieces)
    assert scores(slice(100), [1] * 40 + [0] * 60).sum() == 3 * 40


def test_a_class_that_never_comes_has_no_curve() -> None:
    counts = np.zeros((2, 2, BINS))
    counts[0, 1, -1] = counts[1, 0, 0] = 5
    first, second = curves_of(counts)
    assert first is not None
    assert first.average_precision == 1.0
    assert second is None


@pytest.mark.parametrize(("classes", "shape"), [(3, (4, 2)), (50, (4,))])
def test_positions_and_many_classes_have_none(classes: int, shape: tuple[int, ...]) -> None:
    answers = tf.zeros([*shape, classes])
    found = Classification(classes).sums(tf.zeros(shape, tf.int32), answers, tf.ones([4]))
    assert "scores" not in found
    assert Classification(classes).curves({}) == []
