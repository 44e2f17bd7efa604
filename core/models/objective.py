"""What answers are for: the loss of an example, its right answers, figures over many.

A task is one class. An app may bring a loss and metrics of its own; the figures of its task are
computed beside them.

Precision and recall over all thresholds, each class against the rest, come from counts that workers
add up. Each example's score of a class is the log-odds of its softmax, put into one of `BINS` bins,
so curves of any number of examples need one small table. Average precision is that of scikit-learn,
up to the width of a bin: the sum over the thresholds of precision times the recall that it adds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import sqrt
from operator import mul
from typing import TYPE_CHECKING, Any, ClassVar

from core.ground.errors import UsageError
from core.ground.lazy import np, tf

if TYPE_CHECKING:
    from numpy.typing import NDArray


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


Values = Mapping[str, "NDArray[np.float64]"]

SMALLEST_PROBABILITY = 1e-7
"""Keras's epsilon: the logarithm of a smaller probability counts as that of this one."""

EXAMPLES = "examples"
LOSS = "loss"
CONFUSION = "confusion"
SCORES = "scores"
OWN = "own/"
"""Names of sums. A metric of the app's own has `OWN` before its name."""


@dataclass(frozen=True)
class Objective(ABC):
    """One task over `outputs` answers an example.

    The functions below are traced: they compute with tensors.

    `loss` and `metrics` are an app's own functions of (targets, answers). `probabilities` says that
    the network ends in a softmax or a sigmoid itself.
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

        `smoothing` spreads that share of each label over all classes. Raises UsageError if the
        app's own loss does not answer with one value an example or position.
        """
        if self.loss is None:
            return self._losses(targets, answers, smoothing)
        return _of_examples("loss", self.loss(targets, answers), targets)

    @abstractmethod
    def _losses(self, targets: Any, answers: Any, smoothing: float) -> Any:
        """The task's usual loss, of each example or position."""

    @abstractmethod
    def hits(self, targets: Any, answers: Any) -> Any:
        """Count the right answers, a float32 scalar; 0 where none is right or wrong."""

    def sums(self, targets: Any, answers: Any, counts: Any) -> dict[str, Any]:
        """Add up over a batch what figures are computed from, but each loss by itself.

        `counts`, float32 (n,), is 1 for what counts.
        """
        totals = {
            EXAMPLES: tf.reduce_sum(counts),
            LOSS: self.losses(targets, answers) * counts,
            **self._sums(targets, answers, counts),
        }
        for name, values in self._own(targets, answers).items():
            by_example = over_positions(_of_examples(f"metrics: {name}", values, targets))
            totals[f"{OWN}{name}"] = tf.reduce_sum(by_example * counts)
        return totals

    def classes_named(self, answers: Any) -> list[Any]:
        """Return the class that each example is taken for, in a list; empty without one each."""
        return []

    def _own(self, targets: Any, answers: Any) -> Mapping[str, Any]:
        measured = {} if self.metrics is None else self.metrics(targets, answers)
        if not isinstance(measured, Mapping):
            raise UsageError(
                f"metrics(): expected {{name: values}}, got {type(measured).__name__}: return a"
                " dict"
            )
        return measured

    @abstractmethod
    def _sums(self, targets: Any, answers: Any, counts: Any) -> dict[str, Any]:
        """Add up what the figures of the task need."""

    def figures(self, sums: Values) -> dict[str, Any]:
        """The fields of `status.parts.Figures`, from sums over at least one example."""
        examples = float(sums[EXAMPLES])
        if examples == 0:
            raise ValueError("no window was evaluated")
        app_metrics = {
            name.removeprefix(OWN): float(value) / examples
            for name, value in sums.items()
            if name.startswith(OWN)
        }
        # TensorFlow adds up in an order that differs by processor.
        loss = float(np.sum(sums[LOSS], dtype=np.float64))
        return self._figures(sums, examples, loss / examples, app_metrics)

    @abstractmethod
    def _figures(
        self, sums: Values, examples: float, loss: float, app_metrics: dict[str, float]
    ) -> dict[str, Any]:
        """Return the figures of the task."""

    def confusion(self, sums: Values) -> NDArray[np.int64]:
        """Counts (classes, classes), rows the true class; (0, 0) for a task without classes."""
        del sums
        return np.zeros((0, 0), np.int64)

    def by_label(self, sums: Values) -> list[tuple[int, int, int]]:
        """Return how often each label was right, wrong and missed.

        It is empty for tasks without several labels.
        """
        del sums
        return []

    def curves(self, sums: Values) -> list[Curve | None]:
        """Return precision over recall of each class.

        It is empty where answers have no such scores.
        """
        del sums
        return []

    def no_confusion(self) -> NDArray[np.int64]:
        """Return what `confusion` answers before the first example."""
        return np.zeros((0, 0), np.int64)

    @property
    def loss_of_guessing(self) -> float | None:
        """The loss of a network that knows nothing; None where it depends on the data."""
        return None


def over_positions(values: Any) -> Any:
    """The mean over all axes but the first."""
    if len(values.shape) == 1:
        return values
    return tf.reduce_mean(values, range(1, len(values.shape)))


def _of_examples(what: str, values: Any, targets: Any) -> Any:
    """An app's values for the examples of `targets` as float32, (n,) or (n, ...)."""
    expected = f"{what}(): expected one value for each example, shape (batch,), got"
    try:
        tensor = tf.cast(tf.convert_to_tensor(values), tf.float32)
    except (ValueError, TypeError):
        raise UsageError(
            f"{expected} {type(values).__name__}: return a tensor of numbers"
        ) from None
    if tensor.shape.rank is None:
        raise UsageError(
            f"{expected} a tensor whose shape is not known before it is computed: set it with"
            " tf.ensure_shape; tf.py_function, whose tensors have none, does not run on workers"
        )
    if not tensor.shape.rank:
        raise UsageError(
            f"{expected} one number for the whole batch: leave out the mean over the batch (in a"
            " Keras loss: reduction=None)"
        )
    if not tensor.shape[:1].is_compatible_with(targets.shape[:1]):
        raise UsageError(
            f"{expected} {tensor.shape[0]} values for {targets.shape[0]} examples: keep the batch's"
            " axis"
        )
    return tensor
