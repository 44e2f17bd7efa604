"""The tasks of networks, a class each: usual loss, right answers, figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.ground.lazy import np, tf
from core.models.objective import (
    CONFUSION,
    MOST_CLASSES,
    SCORES,
    SMALLEST_PROBABILITY,
    Curve,
    Objective,
    Values,
    curves_of,
    over_positions,
    score_counts,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST_MATRIX = 256
"""Classes whose confusions are counted one by one; of more, a reply would be larger than the model.
"""


@dataclass(frozen=True)
class Classification(Objective):
    """One of `outputs` classes for each example, or for each position of it.

    Answers have one more axis than targets.

    Loss: cross-entropy, the mean over the positions. Figures: accuracy; precision, recall and F1 by
    class; each position counts as an example does.
    """

    task = "classification"
    guesses = True

    def _losses(self, targets: Any, answers: Any, smoothing: float) -> Any:
        labels = tf.one_hot(targets, self.outputs) * (1.0 - smoothing) + smoothing / self.outputs
        if self.probabilities:
            # As Keras: with a sigmoid a class the loss would otherwise be least where every class
            # is certain.
            shares = tf.clip_by_value(self._shares(answers), SMALLEST_PROBABILITY, 1.0)
            return -tf.reduce_sum(labels * tf.math.log(shares), -1)
        return tf.nn.softmax_cross_entropy_with_logits(labels, answers)

    def hits(self, targets: Any, answers: Any) -> Any:
        """Count the positions whose largest answer is their class, as a share of each example."""
        right = tf.cast(
            tf.equal(tf.argmax(answers, -1, tf.int32), tf.cast(targets, tf.int32)), tf.float32
        )
        return tf.reduce_sum(over_positions(right))

    def classes_named(self, answers: Any) -> list[Any]:
        """Return the class that each example is taken for; empty where positions have classes."""
        return [tf.argmax(answers, -1, tf.int32)] if len(answers.shape) == 2 else []

    def _sums(self, targets: Any, answers: Any, counts: Any) -> dict[str, Any]:
        predicted = tf.argmax(answers, -1, tf.int32)
        # A chunk of images has more positions than float32 counts exactly.
        position_counts = tf.cast(
            tf.reshape(counts, [-1] + [1] * (len(targets.shape) - 1)), tf.float64
        )
        position_counts *= tf.ones_like(predicted, tf.float64)
        flat = [
            tf.reshape(values, [-1])
            for values in (tf.cast(targets, tf.int32), predicted, position_counts)
        ]
        if self._has_matrix:
            confusion = tf.math.confusion_matrix(
                flat[0], flat[1], self.outputs, weights=flat[2], dtype=tf.float64
            )
            return {CONFUSION: confusion, **self._scores(targets, answers, counts)}
        right = tf.cast(tf.equal(flat[0], flat[1]), tf.float64) * flat[2]
        counted = {
            "hits": (flat[0], right),
            "true": (flat[0], flat[2]),
            "predicted": (flat[1], flat[2]),
        }
        return {
            name: tf.math.unsorted_segment_sum(weights, classes, self.outputs)
            for name, (classes, weights) in counted.items()
        }

    def _scores(self, targets: Any, answers: Any, counts: Any) -> dict[str, Any]:
        """Return what curves are drawn from, where an example has one of a few classes."""
        if len(targets.shape) != 1 or self.outputs > MOST_CLASSES:
            return {}
        return {SCORES: score_counts(targets, self._shares(answers), counts, self.outputs)}

    def _shares(self, answers: Any) -> Any:
        """Return what each class has of the answers' certainty, (n, classes)."""
        if self.probabilities:
            return tf.math.divide_no_nan(answers, tf.reduce_sum(answers, -1, keepdims=True))
        return tf.nn.softmax(answers)

    def curves(self, sums: Values) -> list[Curve | None]:
        """Return the curves of the scores that were counted."""
        if SCORES in sums:
            return curves_of(sums[SCORES])
        return []

    @property
    def _has_matrix(self) -> bool:
        return self.outputs <= LARGEST_MATRIX

    def _figures(
        self, sums: Values, examples: float, loss: float, app_metrics: dict[str, float]
    ) -> dict[str, Any]:
        hits, true, predicted = (
            sums.get(name, np.zeros(0)) for name in ("hits", "true", "predicted")
        )
        if self._has_matrix:
            matrix = self.confusion(sums).astype(np.float64)
            hits = np.diag(matrix)
            true = matrix.sum(1)
            predicted = matrix.sum(0)
        by_class = _by_class(hits, true, predicted)
        return {
            "accuracy": float(hits.sum() / true.sum()),
            "loss": loss,
            "others": app_metrics,
            **by_class,
        }

    def confusion(self, sums: Values) -> NDArray[np.int64]:
        """Return the counts; (0, 0) for more than `LARGEST_MATRIX` classes."""
        if not self._has_matrix:
            return self.no_confusion()
        counts: NDArray[np.int64] = np.rint(sums[CONFUSION]).astype(np.int64)
        return counts.reshape(self.outputs, self.outputs)

    def by_label(self, sums: Values) -> list[tuple[int, int, int]]:
        """Return the counts of each class where there is no matrix; nothing where there is one."""
        if self._has_matrix:
            return []
        return _right_wrong_missed(sums)

    def no_confusion(self) -> NDArray[np.int64]:
        """Return zeros, (0, 0) without a matrix."""
        if self._has_matrix:
            size = self.outputs
        else:
            size = 0
        return np.zeros((size, size), np.int64)

    @property
    def loss_of_guessing(self) -> float | None:
        """Return the logarithm of the number of classes; None for a loss of the app's own."""
        if self.loss is None:
            return float(np.log(max(2, self.outputs)))
        return None


@dataclass(frozen=True)
class Multilabel(Objective):
    """Any number of `outputs` labels for each example.

    Targets and answers are (n, outputs), targets 0 or 1.

    Loss: sigmoid cross-entropy, the mean over the labels. Figures: accuracy (all labels right), the
    share of labels that are right, precision, recall and F1 by label.
    """

    task = "multilabel"
    guesses = True
    own_names = ("label_accuracy",)

    def _losses(self, targets: Any, answers: Any, smoothing: float) -> Any:
        labels = tf.cast(targets, tf.float32) * (1.0 - smoothing) + smoothing / 2.0
        if self.probabilities:
            shares = tf.clip_by_value(answers, SMALLEST_PROBABILITY, 1.0 - SMALLEST_PROBABILITY)
            by_label = -labels * tf.math.log(shares) - (1.0 - labels) * tf.math.log(1.0 - shares)
        else:
            by_label = tf.nn.sigmoid_cross_entropy_with_logits(labels, answers)
        return tf.reduce_mean(by_label, -1)

    def _predicted(self, answers: Any) -> Any:
        return answers > (0.5 if self.probabilities else 0.0)

    def _right(self, targets: Any, answers: Any) -> Any:
        """Shape (n, outputs)."""
        return tf.equal(self._predicted(answers), tf.cast(targets, tf.bool))

    def hits(self, targets: Any, answers: Any) -> Any:
        """Count the examples with all labels right."""
        return tf.reduce_sum(tf.cast(tf.reduce_all(self._right(targets, answers), -1), tf.float32))

    def _sums(self, targets: Any, answers: Any, counts: Any) -> dict[str, Any]:
        true = tf.cast(targets, tf.float32)
        predicted = tf.cast(self._predicted(answers), tf.float32)
        right = self._right(targets, answers)
        column = counts[:, None]
        return {
            "exact": tf.reduce_sum(tf.cast(tf.reduce_all(right, -1), tf.float32) * counts),
            "right": tf.reduce_sum(tf.cast(right, tf.float32) * column),
            "hits": tf.reduce_sum(true * predicted * column, 0),
            "true": tf.reduce_sum(true * column, 0),
            "predicted": tf.reduce_sum(predicted * column, 0),
        }

    def _figures(
        self, sums: Values, examples: float, loss: float, app_metrics: dict[str, float]
    ) -> dict[str, Any]:
        labels_right = float(sums["right"]) / (examples * self.outputs)
        by_label = _by_class(sums["hits"], sums["true"], sums["predicted"])
        other_metrics = {"label_accuracy": labels_right, **app_metrics}
        return {
            "accuracy": float(sums["exact"]) / examples,
            "loss": loss,
            "others": other_metrics,
            **by_label,
        }

    def by_label(self, sums: Values) -> list[tuple[int, int, int]]:
        """Return the counts of each label."""
        return _right_wrong_missed(sums)


@dataclass(frozen=True)
class Regression(Objective):
    """Numbers for each example: targets and answers hold `outputs` values each.

    Loss: the mean squared error. Figures: mean absolute error, root of the mean squared error, and
    R^2, the mean over the outputs of 1 - squared error / variance (as scikit-learn's `r2_score`).
    With a loss of the app's own, answers may be of any shape, such as a mean and a variance for
    each target; these figures are left out then.
    """

    task = "regression"
    guesses = False
    own_names = ("mae", "rmse", "r2")

    def _are_like_targets(self, answers: Any) -> bool:
        return bool(answers.shape[1:].num_elements() == self.outputs)

    def _pair(self, targets: Any, answers: Any) -> tuple[Any, Any]:
        shape = [-1, self.outputs]
        return tf.reshape(tf.cast(targets, tf.float32), shape), tf.reshape(answers, shape)

    def _losses(self, targets: Any, answers: Any, smoothing: float) -> Any:
        del smoothing
        true, predicted = self._pair(targets, answers)
        return tf.reduce_mean(tf.square(true - predicted), -1)

    def hits(self, targets: Any, answers: Any) -> Any:
        """Return 0: a number is neither right nor wrong."""
        return tf.zeros([])

    def _sums(self, targets: Any, answers: Any, counts: Any) -> dict[str, Any]:
        if not self._are_like_targets(answers):
            return {}
        true, predicted = (tf.cast(values, tf.float64) for values in self._pair(targets, answers))
        column = tf.cast(counts, tf.float64)[:, None]
        return {
            "absolute": tf.reduce_sum(tf.abs(true - predicted) * column, 0),
            "squared": tf.reduce_sum(tf.square(true - predicted) * column, 0),
            "total": tf.reduce_sum(true * column, 0),
            "total_squares": tf.reduce_sum(tf.square(true) * column, 0),
        }

    def _figures(
        self, sums: Values, examples: float, loss: float, app_metrics: dict[str, float]
    ) -> dict[str, Any]:
        if "squared" not in sums:
            return {"loss": loss, "others": app_metrics}
        squared = sums["squared"]
        spread = sums["total_squares"] - np.square(sums["total"]) / examples
        explained = np.where(spread > 0, 1.0 - squared / np.where(spread > 0, spread, 1.0), 0.0)
        other_metrics = {
            "mae": float(np.mean(sums["absolute"])) / examples,
            "rmse": float(np.sqrt(np.mean(squared) / examples)),
            "r2": float(np.mean(explained)),
            **app_metrics,
        }
        return {"loss": loss, "others": other_metrics}


TASKS: Mapping[str, type[Objective]] = {
    kind.task: kind for kind in (Classification, Multilabel, Regression)
}


def _right_wrong_missed(sums: Values) -> list[tuple[int, int, int]]:
    columns = (sums["hits"], sums["predicted"] - sums["hits"], sums["true"] - sums["hits"])
    return [
        (int(right), int(wrong), int(missed)) for right, wrong, missed in zip(*columns, strict=True)
    ]


def _by_class(
    hits: NDArray[np.float64], true: NDArray[np.float64], predicted: NDArray[np.float64]
) -> dict[str, float]:
    """Return precision, recall and F1 from counts by class, macro and weighted.

    Each is (classes,); macro is over those that occur.
    """
    precision = np.divide(hits, predicted, out=np.zeros_like(hits), where=predicted > 0)
    recall = np.divide(hits, true, out=np.zeros_like(hits), where=true > 0)
    total = precision + recall
    f1 = np.divide(2 * precision * recall, total, out=np.zeros_like(hits), where=total > 0)
    occurring = true > 0
    weights = true / max(1.0, float(true.sum()))
    scores = {"f1": f1, "precision": precision, "recall": recall}
    return {
        **{
            f"{name}_macro": float(values[occurring].mean()) if occurring.any() else 0.0
            for name, values in scores.items()
        },
        **{f"{name}_weighted": float((values * weights).sum()) for name, values in scores.items()},
    }
