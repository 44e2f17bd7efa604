"""How much each example counts in a training's loss: by its class, by its own weight."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.dataset import CLASSIFICATION, Dataset
from core.ground.errors import UsageError
from core.ground.lazy import tf
from core.models.objective import over_positions

SHOWN_LABELS = 20
BLOCK_BYTES = 2**22
"""Bytes of classes that are looked at at a time."""


@dataclass(frozen=True)
class LossWeights:
    """`table`, float32 (classes,), is None where all classes count alike.

    `mean` is over the training examples.
    """

    table: NDArray[np.float32] | None = None
    mean: float = 1.0

    @classmethod
    def of(
        cls, setting: str | Mapping[str, float] | None, dataset: Dataset, rows: NDArray[np.integer]
    ) -> "LossWeights":
        """Return what `jobs.train.class_weights` means for the training examples `rows`.

        Raises UsageError where examples have no classes, and for a label that the data does not
        have.
        """
        table = None
        weights = np.ones(len(rows))
        if setting is not None:
            if dataset.task != CLASSIFICATION:
                raise UsageError(
                    "jobs.train.class_weights: expected data with one class for each example or"
                    f" position, got {dataset.summary()}: set it to none"
                )
            counts = np.zeros(len(dataset.labels), np.int64)
            for block in _classes(dataset, rows):
                counts += np.bincount(block.reshape(-1), minlength=len(counts))
            table = _table(setting, dataset.labels, counts)
            means = [table[block].astype(np.float64).mean(1) for block in _classes(dataset, rows)]
            weights = np.concatenate([weights[:0], *means])
        if dataset.weights is not None:
            weights = weights * dataset.mapped(dataset.weights)[rows]
        return cls(table, float(weights.mean()) if len(rows) else 1.0)


def _classes(dataset: Dataset, rows: NDArray[np.integer]) -> Iterator[NDArray[np.int32]]:
    """Yield the classes of some rows at a time, (n, positions).

    Images have more of them than a coordinator has memory.
    """
    classes = dataset.target_values()
    at_once = max(1, BLOCK_BYTES // dataset.targets.example_bytes)
    for start in range(0, len(rows), at_once):
        block = np.asarray(classes[rows[start : start + at_once]], np.int32)
        yield block.reshape(len(block), -1)


def _table(
    setting: str | Mapping[str, float], labels: Sequence[str], counts: NDArray[np.integer]
) -> NDArray[np.float32]:
    if not isinstance(setting, str):
        unknown = sorted(set(setting) - set(labels))
        if unknown:
            choices = ", ".join(labels[:SHOWN_LABELS]) + (
                ", ..." if len(labels) > SHOWN_LABELS else ""
            )
            raise UsageError(
                f"jobs.train.class_weights: {unknown[0]!r} is not a label of this data: choose"
                f" among {choices}"
            )
        return np.array([setting.get(label, 1.0) for label in labels], np.float32)
    present = counts > 0
    # A class without training examples weighs nothing here: 1 instead of a division by zero.
    balanced: NDArray[np.float64] = counts.sum() / (present.sum() * np.maximum(counts, 1))
    return np.where(present, balanced, 1.0).astype(np.float32)


def weighted(losses: Any, classes: Any, table: NDArray[np.float32] | None, weights: Any) -> Any:
    """Multiply each of the losses (n,) by the weights of its class and of its example.

    `classes` are int32 (n,), `table` has a weight for each class, and `weights`, float32 (n,), one
    for each example. Losses and classes of positions, (n, ...), become the mean over them, each
    times the weight of its own class. Without a table and without weights losses (n,) stay as they
    are. Raises UsageError for a table and losses of examples whose positions have classes.
    """
    if table is not None:
        if len(losses.shape) != len(classes.shape):
            raise UsageError(
                "jobs.train.class_weights: expected loss() to answer with a value for each"
                f" position, as the classes are, got {len(losses.shape)} axes instead of"
                f" {len(classes.shape)}: leave out its mean, or set class_weights to null"
            )
        losses = losses * tf.gather(tf.constant(table), classes)
    losses = over_positions(losses)
    if weights is None:
        return losses
    return losses * weights
