"""What a network's answers are for: the loss of each example, its right answers, and the figures over many examples.

A task is one class. An app may bring a loss and metrics of its own; the figures of its task are computed beside them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from cluster.errors import UsageError
from cluster.lazy import np, tf
from cluster.models.curves import MOST_CLASSES, Curve, curves_of, score_counts

if TYPE_CHECKING:
    from numpy.typing import NDArray

Values = Mapping[str, "NDArray[np.float64]"]

SMALLEST_PROBABILITY = 1e-7
"""Keras's epsilon: the logarithm of a smaller probability counts as that of this one."""

LARGEST_MATRIX = 256
"""Classes whose confusions are counted one by one; of more, a reply would be larger than the model."""

EXAMPLES, LOSS, CONFUSION, SCORES, OWN = "examples", "loss", "confusion", "scores", "own/"
"""Names of sums. A metric of the app's own has `OWN` before its name."""


@dataclass(frozen=True)
class Objective(ABC):
    """One task over `outputs` answers an example. The functions below are traced: they compute with tensors.

    `loss` and `metrics` are an app's own functions of (targets, answers). `probabilities` says that the network ends in
    a softmax or a sigmoid itself.
    """

    task: ClassVar[str]
    guesses: ClassVar[bool]
    """Whether an answer is right or wrong, so that there is an accuracy."""

    own_names: ClassVar[tuple[str, ...]] = ()
    """Figures that only this task has."""

    outputs: int
    probabilities: bool = False
    loss: Callable[[Any, Any], Any] | None = None
    metrics: Callable[[Any, Any], Mapping[str, Any]] | None = None

    def losses(self, targets: Any, answers: Any, *, smoothing: float = 0.0) -> Any:
        """Loss of each example, float32 (n,): the mean over its positions. See `losses_at`."""
        return over_positions(self.losses_at(targets, answers, smoothing=smoothing))

    def losses_at(self, targets: Any, answers: Any, *, smoothing: float = 0.0) -> Any:
        """Loss of each example, float32 (n,), or of each of its positions, (n, ...).

        `smoothing` spreads that share of each label over all classes. Raises UsageError if the app's own loss does not
        answer with one value an example or position.
        """
        if self.loss is None:
            return self._losses(targets, answers, smoothing)
        return _of_examples("loss", self.loss(targets, answers))

    @abstractmethod
    def _losses(self, targets: Any, answers: Any, smoothing: float) -> Any:
        """The task's usual loss, of each example or position."""

    @abstractmethod
    def hits(self, targets: Any, answers: Any) -> Any:
        """Right answers in the batch, a float32 scalar; 0 where answers are neither right nor wrong."""

    def sums(self, targets: Any, answers: Any, counts: Any) -> dict[str, Any]:
        """What the figures are computed from, added up over a batch. `counts`, float32 (n,), is 1 for what counts."""
        found = {
            EXAMPLES: tf.reduce_sum(counts),
            LOSS: tf.reduce_sum(self.losses(targets, answers) * counts),
            **self._sums(targets, answers, counts),
        }
        for name, values in self._own(targets, answers).items():
            each = over_positions(_of_examples(f"metrics: {name}", values))
            found[f"{OWN}{name}"] = tf.reduce_sum(each * counts)
        return found

    def _own(self, targets: Any, answers: Any) -> Mapping[str, Any]:
        measured = {} if self.metrics is None else self.metrics(targets, answers)
        if not isinstance(measured, Mapping):
            raise UsageError(f"metrics(): expected {{name: values}}, got {type(measured).__name__}: return a dict")
        return measured

    @abstractmethod
    def _sums(self, targets: Any, answers: Any, counts: Any) -> dict[str, Any]:
        """Those of the task."""

    def figures(self, sums: Values) -> dict[str, Any]:
        """The fields of `status.parts.Figures`, from sums over at least one example."""
        examples = float(sums[EXAMPLES])
        if examples == 0:
            raise ValueError("no window was evaluated")
        own = {name.removeprefix(OWN): float(value) / examples for name, value in sums.items() if name.startswith(OWN)}
        return self._figures(sums, examples, float(sums[LOSS]) / examples, own)

    @abstractmethod
    def _figures(self, sums: Values, examples: float, loss: float, own: dict[str, float]) -> dict[str, Any]:
        """Those of the task."""

    def confusion(self, sums: Values) -> NDArray[np.int64]:
        """Counts (classes, classes), rows the true class; (0, 0) for a task without classes."""
        del sums
        return np.zeros((0, 0), np.int64)

    def by_label(self, sums: Values) -> list[tuple[int, int, int]]:
        """For each of several labels at once how often it was right, wrong and missed; empty for other tasks."""
        del sums
        return []

    def curves(self, sums: Values) -> list[Curve | None]:
        """Precision over recall of each class against the rest; empty where answers have no such scores."""
        del sums
        return []

    def no_confusion(self) -> NDArray[np.int64]:
        """What `confusion` answers before the first example."""
        return np.zeros((0, 0), np.int64)

    @property
    def loss_of_guessing(self) -> float | None:
        """The loss of a network that knows nothing; None where it depends on the data."""
        return None


@dataclass(frozen=True)
class Classification(Objective):
    """One of `outputs` classes for each example, or for each position of it; answers have one more axis than targets.

    Loss: cross-entropy, the mean over the positions. Figures: accuracy; precision, recall and F1 by class; each
    position counts as an example does.
    """

    task = "classification"
    guesses = True

    def _losses(self, targets: Any, answers: Any, smoothing: float) -> Any:
        labels = tf.one_hot(targets, self.outputs) * (1.0 - smoothing) + smoothing / self.outputs
        if self.probabilities:
            # As Keras: with a sigmoid a class the loss would otherwise be least where every class is certain.
            shares = tf.math.divide_no_nan(answers, tf.reduce_sum(answers, -1, keepdims=True))
            shares = tf.clip_by_value(shares, SMALLEST_PROBABILITY, 1.0)
            return -tf.reduce_sum(labels * tf.math.log(shares), -1)
        return tf.nn.softmax_cross_entropy_with_logits(labels, answers)

    def hits(self, targets: Any, answers: Any) -> Any:
        """See Objective."""
        right = tf.cast(tf.equal(tf.argmax(answers, -1, tf.int32), tf.cast(targets, tf.int32)), tf.float32)
        return tf.reduce_sum(over_positions(right))

    def _sums(self, targets: Any, answers: Any, counts: Any) -> dict[str, Any]:
        predicted = tf.argmax(answers, -1, tf.int32)
        # A chunk of images has more positions than float32 counts exactly.
        each = tf.cast(tf.reshape(counts, [-1] + [1] * (len(targets.shape) - 1)), tf.float64)
        each *= tf.ones_like(predicted, tf.float64)
        flat = [tf.reshape(values, [-1]) for values in (tf.cast(targets, tf.int32), predicted, each)]
        if self._has_matrix:
            confusion = tf.math.confusion_matrix(flat[0], flat[1], self.outputs, weights=flat[2], dtype=tf.float64)
            return {CONFUSION: confusion, **self._scores(targets, answers, counts)}
        right = tf.cast(tf.equal(flat[0], flat[1]), tf.float64) * flat[2]
        counted = {"hits": (flat[0], right), "true": (flat[0], flat[2]), "predicted": (flat[1], flat[2])}
        return {
            name: tf.math.unsorted_segment_sum(weights, classes, self.outputs)
            for name, (classes, weights) in counted.items()
        }

    def _scores(self, targets: Any, answers: Any, counts: Any) -> dict[str, Any]:
        """What curves are drawn from, where each example has one of a few classes."""
        if len(targets.shape) != 1 or self.outputs > MOST_CLASSES:
            return {}
        if self.probabilities:
            shares = tf.math.divide_no_nan(answers, tf.reduce_sum(answers, -1, keepdims=True))
        else:
            shares = tf.nn.softmax(answers)
        return {SCORES: score_counts(targets, shares, counts, self.outputs)}

    def curves(self, sums: Values) -> list[Curve | None]:
        """See Objective."""
        return curves_of(sums[SCORES]) if SCORES in sums else []

    @property
    def _has_matrix(self) -> bool:
        return self.outputs <= LARGEST_MATRIX

    def _figures(self, sums: Values, examples: float, loss: float, own: dict[str, float]) -> dict[str, Any]:
        hits, true, predicted = (sums.get(name, np.zeros(0)) for name in ("hits", "true", "predicted"))
        if self._has_matrix:
            matrix = self.confusion(sums).astype(np.float64)
            hits, true, predicted = np.diag(matrix), matrix.sum(1), matrix.sum(0)
        by_class = _by_class(hits, true, predicted)
        return {"accuracy": float(hits.sum() / true.sum()), "loss": loss, "others": own, **by_class}

    def confusion(self, sums: Values) -> NDArray[np.int64]:
        """See Objective; (0, 0) for more than `LARGEST_MATRIX` classes."""
        if not self._has_matrix:
            return self.no_confusion()
        counts: NDArray[np.int64] = np.rint(sums[CONFUSION]).astype(np.int64)
        return counts.reshape(self.outputs, self.outputs)

    def by_label(self, sums: Values) -> list[tuple[int, int, int]]:
        """See Objective; also of classes that have no matrix."""
        return [] if self._has_matrix else _right_wrong_missed(sums)

    def no_confusion(self) -> NDArray[np.int64]:
        """See Objective."""
        size = self.outputs if self._has_matrix else 0
        return np.zeros((size, size), np.int64)

    @property
    def loss_of_guessing(self) -> float | None:
        """See Objective."""
        return float(np.log(max(2, self.outputs))) if self.loss is None else None


@dataclass(frozen=True)
class Multilabel(Objective):
    """Any number of `outputs` labels for each example; targets and answers are (n, outputs), targets 0 or 1.

    Loss: sigmoid cross-entropy, the mean over the labels. Figures: accuracy (all labels right), the share of labels
    that are right, precision, recall and F1 by label.
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

    def _said(self, answers: Any) -> Any:
        return answers > (0.5 if self.probabilities else 0.0)

    def _right(self, targets: Any, answers: Any) -> Any:
        """Shape (n, outputs)."""
        return tf.equal(self._said(answers), tf.cast(targets, tf.bool))

    def hits(self, targets: Any, answers: Any) -> Any:
        """See Objective."""
        return tf.reduce_sum(tf.cast(tf.reduce_all(self._right(targets, answers), -1), tf.float32))

    def _sums(self, targets: Any, answers: Any, counts: Any) -> dict[str, Any]:
        true, said = tf.cast(targets, tf.float32), tf.cast(self._said(answers), tf.float32)
        right, column = self._right(targets, answers), counts[:, None]
        return {
            "exact": tf.reduce_sum(tf.cast(tf.reduce_all(right, -1), tf.float32) * counts),
            "right": tf.reduce_sum(tf.cast(right, tf.float32) * column),
            "hits": tf.reduce_sum(true * said * column, 0),
            "true": tf.reduce_sum(true * column, 0),
            "predicted": tf.reduce_sum(said * column, 0),
        }

    def _figures(self, sums: Values, examples: float, loss: float, own: dict[str, float]) -> dict[str, Any]:
        labels_right = float(sums["right"]) / (examples * self.outputs)
        by_label = _by_class(sums["hits"], sums["true"], sums["predicted"])
        others = {"label_accuracy": labels_right, **own}
        return {"accuracy": float(sums["exact"]) / examples, "loss": loss, "others": others, **by_label}

    def by_label(self, sums: Values) -> list[tuple[int, int, int]]:
        """See Objective."""
        return _right_wrong_missed(sums)


@dataclass(frozen=True)
class Regression(Objective):
    """Numbers for each example: targets and answers hold `outputs` values each.

    Loss: the mean squared error. Figures: mean absolute error, root of the mean squared error, and R^2, the mean over
    the outputs of 1 - squared error / variance (as scikit-learn's `r2_score`).
    """

    task = "regression"
    guesses = False
    own_names = ("mae", "rmse", "r2")

    def _pair(self, targets: Any, answers: Any) -> tuple[Any, Any]:
        shape = [-1, self.outputs]
        return tf.reshape(tf.cast(targets, tf.float32), shape), tf.reshape(answers, shape)

    def _losses(self, targets: Any, answers: Any, smoothing: float) -> Any:
        del smoothing
        true, found = self._pair(targets, answers)
        return tf.reduce_mean(tf.square(true - found), -1)

    def hits(self, targets: Any, answers: Any) -> Any:
        """See Objective."""
        return tf.zeros([])

    def _sums(self, targets: Any, answers: Any, counts: Any) -> dict[str, Any]:
        true, found = (tf.cast(values, tf.float64) for values in self._pair(targets, answers))
        column = tf.cast(counts, tf.float64)[:, None]
        return {
            "absolute": tf.reduce_sum(tf.abs(true - found) * column, 0),
            "squared": tf.reduce_sum(tf.square(true - found) * column, 0),
            "total": tf.reduce_sum(true * column, 0),
            "total_squares": tf.reduce_sum(tf.square(true) * column, 0),
        }

    def _figures(self, sums: Values, examples: float, loss: float, own: dict[str, float]) -> dict[str, Any]:
        squared, spread = sums["squared"], sums["total_squares"] - np.square(sums["total"]) / examples
        explained = np.where(spread > 0, 1.0 - squared / np.where(spread > 0, spread, 1.0), 0.0)
        others = {
            "mae": float(np.mean(sums["absolute"])) / examples,
            "rmse": float(np.sqrt(np.mean(squared) / examples)),
            "r2": float(np.mean(explained)),
            **own,
        }
        return {"loss": loss, "others": others}


TASKS: Mapping[str, type[Objective]] = {kind.task: kind for kind in (Classification, Multilabel, Regression)}


def _right_wrong_missed(sums: Values) -> list[tuple[int, int, int]]:
    columns = (sums["hits"], sums["predicted"] - sums["hits"], sums["true"] - sums["hits"])
    return [(int(right), int(wrong), int(missed)) for right, wrong, missed in zip(*columns, strict=True)]


def over_positions(values: Any) -> Any:
    """The mean over all axes but the first."""
    return values if len(values.shape) == 1 else tf.reduce_mean(values, range(1, len(values.shape)))


def _of_examples(what: str, values: Any) -> Any:
    """An app's values as float32, (n,) or (n, ...)."""
    expected = f"{what}(): expected one value for each example, shape (batch,), got"
    try:
        found = tf.cast(tf.convert_to_tensor(values), tf.float32)
    except (ValueError, TypeError):
        raise UsageError(f"{expected} {type(values).__name__}: return a tensor of numbers") from None
    if found.shape.rank is None:
        raise UsageError(
            f"{expected} a tensor whose shape is not known before it is computed: set it with tf.ensure_shape; "
            "tf.py_function, whose tensors have none, does not run on workers"
        )
    if not found.shape.rank:
        raise UsageError(
            f"{expected} one number for the whole batch: leave out the mean over the batch (in a Keras loss: "
            "reduction=None)"
        )
    return found


def _by_class(hits: NDArray[np.float64], true: NDArray[np.float64], predicted: NDArray[np.float64]) -> dict[str, float]:
    """Precision, recall and F1 from counts by class, each (classes,): macro over those that occur, and weighted."""
    precision = np.divide(hits, predicted, out=np.zeros_like(hits), where=predicted > 0)
    recall = np.divide(hits, true, out=np.zeros_like(hits), where=true > 0)
    total = precision + recall
    f1 = np.divide(2 * precision * recall, total, out=np.zeros_like(hits), where=total > 0)
    there, weights = true > 0, true / max(1.0, float(true.sum()))
    found = {"f1": f1, "precision": precision, "recall": recall}
    return {
        **{f"{name}_macro": float(values[there].mean()) if there.any() else 0.0 for name, values in found.items()},
        **{f"{name}_weighted": float((values * weights).sum()) for name, values in found.items()},
    }
