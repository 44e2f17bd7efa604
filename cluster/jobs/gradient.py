"""The gradient of one batch, as a function of the flat vector: micro-batches, loss, L2, clipping."""

from dataclasses import dataclass
from typing import Any

import numpy as np

import cluster.engine.environment  # noqa: F401  (before tensorflow)
from cluster.inventory.training import TrainJob
from cluster.models import Network
from cluster.parameters import BLOCK

import tensorflow as tf  # isort: skip


@dataclass(frozen=True)
class BatchGradient:
    """Of one batch: mean loss, right answers, gradient norm before clipping, and what is pushed."""

    loss: Any
    hits: Any
    norm: Any
    gradient: Any
    statistics: Any


def block_norm(vector: Any, size: int) -> Any:
    """Euclidean norm of a vector of `size` elements, summed in blocks of 1,024 in layout order.

    The order of the additions depends on nothing but the layout, so that the norm has the same bits on any number of
    workers and shards.
    """
    padded = tf.pad(vector, [[0, -size % BLOCK]])
    return tf.sqrt(tf.reduce_sum(tf.reduce_sum(tf.square(tf.reshape(padded, [-1, BLOCK])), 1)))


def cross_entropy(logits: Any, classes: Any, class_count: int, label_smoothing: float) -> Any:
    """Loss of each window, float32 (n,), against labels smoothed by `label_smoothing` spread over all classes."""
    labels = tf.one_hot(classes, class_count) * (1.0 - label_smoothing) + label_smoothing / class_count
    return tf.nn.softmax_cross_entropy_with_logits(labels, logits)


class GradientOfBatch:
    """Computes a batch in micro-batches whose gradients add up in a fixed binary tree."""

    def __init__(self, network: Network, job: TrainJob) -> None:
        self._network, self._job = network, job
        layout = network.layout
        decayed = np.zeros(layout.trained_size, np.float32)
        for slot in layout.slots:
            if slot.spec.trained and slot.spec.decayed:
                decayed[slot.offset : slot.offset + slot.spec.size] = 1.0
        self._decayed = decayed
        self._piece = tf.function(self._of_piece, autograph=False)

    def _of_piece(self, trained: Any, statistics: Any, windows: Any, classes: Any, seed: Any) -> tuple[Any, ...]:
        layout = self._network.layout
        with tf.GradientTape() as tape:
            tape.watch(trained)
            named = self._network.unpack(tf.concat([trained, statistics], 0))
            output = self._network.apply(named, windows, training=True, seed=seed)
            losses = cross_entropy(output.logits, classes, self._network.problem.classes, self._job.label_smoothing)
            loss = tf.reduce_sum(losses) / self._job.batch_size
        gradient = tape.gradient(loss, trained)
        hits = tf.reduce_sum(tf.cast(tf.equal(tf.argmax(output.logits, 1, tf.int32), classes), tf.float32))
        measured = [
            tf.reshape(output.statistics[slot.spec.name], [-1]) for slot in layout.slots if not slot.spec.trained
        ]
        new = tf.concat(measured, 0) if measured else tf.zeros([0])
        share = tf.cast(tf.shape(classes)[0], tf.float32) / self._job.batch_size
        return loss, hits, gradient, new * share

    def __call__(self, trained: Any, statistics: Any, windows: Any, classes: Any, seed: Any) -> BatchGradient:
        """Gradient at `trained` (trained_size,) and new statistics (statistics_size,) of a whole batch.

        `windows` are (batch_size, steps, channels), `seed` int32 (2,): each micro-batch drops its own units. A
        gradient that is not finite is replaced by zeros, so that the parameters survive for whoever looks into it.
        """
        job = self._job
        sizes = [job.batch_size * (k + 1) // job.micro_batches - job.batch_size * k // job.micro_batches
                 for k in range(job.micro_batches)]  # fmt: skip
        pieces = [
            self._piece(trained, statistics, part, labels, seed + tf.constant([0, k]))
            for k, (part, labels) in enumerate(zip(tf.split(windows, sizes), tf.split(classes, sizes), strict=True))
        ]
        loss, hits, gradient, new = (_tree_sum([piece[k] for piece in pieces]) for k in range(4))
        if job.l2:
            gradient += job.l2 * self._decayed * trained
        norm = block_norm(gradient, self._network.layout.trained_size)
        if job.clip_norm is not None:
            gradient *= job.clip_norm / tf.maximum(norm, job.clip_norm)
        finite = tf.math.is_finite(norm) & tf.math.is_finite(loss)
        gradient = tf.where(finite, gradient, tf.zeros_like(gradient))
        new = tf.where(finite, new, statistics)
        return BatchGradient(loss, hits, norm, gradient, new)


def _tree_sum(values: list[Any]) -> Any:
    """Sum in a fixed binary tree: the same additions whoever computed the values."""
    while len(values) > 1:
        values = [values[k] + values[k + 1] if k + 1 < len(values) else values[k] for k in range(0, len(values), 2)]
    return values[0]
