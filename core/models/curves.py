"""Precision and recall over all thresholds, each class against the rest.

They come from counts that workers add up.

Each example's score of a class is the log-odds of its softmax, put into one of `BINS` bins, so
curves of any number of examples need one small table. Average precision is that of scikit-learn, up
to the width of a bin: the sum over the thresholds of precision times the recall that it adds.
"""

from dataclasses import dataclass
from itertools import accumulate
from math import sqrt
from operator import mul
from typing import Any

from core.ground.lazy import np, tf

BINS = 128
MOST_CLASSES = 30
"""Classes of which a person can read the curves."""
SURE = 1e-6
"""A probability nearer to 0 or 1 counts as this far away."""


@dataclass(frozen=True)
class Curve:
    """The curve of one class, from the highest threshold down, where recall rises.

    Recall and precision have one value a threshold, at most BINS.
    """

    recall: tuple[float, ...]
    precision: tuple[float, ...]
    average_precision: float


def score_counts(targets: Any, probabilities: Any, counts: Any, classes: int) -> Any:
    """Float64 (classes, 2, BINS): examples by score of each class, those of the others and its own.

    Targets (n,), probabilities (n, classes), counts (n,).
    """
    place = tf.raw_ops.Bucketize(input=probabilities, boundaries=_borders())
    one_hot = tf.one_hot(tf.cast(targets, tf.int32), classes, dtype=tf.int32)
    rows = tf.range(classes)[None] * (2 * BINS) + one_hot * BINS + place
    weights = tf.cast(counts, tf.float64)[:, None] * tf.ones([1, classes], tf.float64)
    flat = tf.math.unsorted_segment_sum(
        tf.reshape(weights, [-1]), tf.reshape(rows, [-1]), classes * 2 * BINS
    )
    return tf.reshape(flat, [classes, 2, BINS])


def _borders() -> list[float]:
    """Return the probabilities between the bins, whose log-odds lie equally far apart.

    Roots, products and quotients make them: a logarithm has other last bits on other processors.
    """
    highest = (1.0 - SURE) / SURE
    ratio = highest
    for _ in range(BINS.bit_length() - 2):
        ratio = sqrt(ratio)
    odds = accumulate([ratio] * (BINS - 1), mul, initial=1.0 / highest)
    return [border_odds / (1.0 + border_odds) for border_odds in odds][1:]


def curves_of(counts: Any) -> list[Curve | None]:
    """Return the curve of each class from `score_counts` added up.

    A class without an example has None.
    """
    return [
        _curve(negatives[::-1], positives[::-1]) if positives.sum() else None
        for negatives, positives in np.asarray(counts)
    ]


def _curve(negatives: Any, positives: Any) -> Curve:
    right = np.cumsum(positives)
    wrong = np.cumsum(negatives)
    used = (positives + negatives) > 0
    recall = (right / right[-1])[used]
    precision = (right / np.maximum(right + wrong, 1.0))[used]
    added = np.diff(recall, prepend=0.0)
    return Curve(
        tuple(map(float, recall)), tuple(map(float, precision)), float((added * precision).sum())
    )
