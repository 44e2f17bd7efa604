"""The gradient of micro-batches as a function of the flat vector: loss, L2, their sum in a fixed tree, clipping."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from cluster.consistency.policy import tree_sum
from cluster.inventory.training import TrainJob
from cluster.lazy import tf
from cluster.models.augmentation import Augmentation
from cluster.models.distillation import Distillation, Teacher
from cluster.models.kernels import compiled_by_xla
from cluster.models.network import Network
from ps_node.steps import block_norm, either
from worker_node.weights import LossWeights, weighted


@dataclass(frozen=True)
class PieceGradient:
    """The result of one micro-batch: its share of the batch's loss, gradient and statistics, and its right answers."""

    loss: Any
    hits: Any
    gradient: Any
    statistics: Any


@dataclass(frozen=True)
class BatchGradient(PieceGradient):
    """The result of one batch: mean loss, right answers, the push, and the gradient's norm before clipping."""

    norm: Any


def piece_sizes(batch_size: int, micro_batches: int) -> list[int]:
    """Windows of each micro-batch: equal to within one, and the same on every worker."""
    borders = [batch_size * k // micro_batches for k in range(micro_batches + 1)]
    return [end - begin for begin, end in pairwise(borders)]


class GradientOfBatch:
    """Computes a batch in micro-batches, side by side, and adds their gradients in a fixed binary tree."""

    def __init__(
        self, network: Network, job: TrainJob, weights: LossWeights | None = None, teachers: Sequence[Teacher] = ()
    ) -> None:
        """`weights`: how much each class counts in the loss; None counts all alike. `teachers`: of `job.distill`."""
        self._network, self._job = network, job
        self._standardization: Any = None
        self._place: Any = None
        self._distillation = Distillation(job.distill, teachers) if job.distill is not None else None
        self._augmentation = Augmentation.of(job.augment, network.problem)
        self._class_weights = weights.table if weights is not None else None
        layout = network.layout
        decayed = np.zeros(layout.trained_size, np.float32)
        for slot in layout.slots:
            if slot.spec.trained and slot.spec.decayed:
                decayed[slot.offset : slot.offset + slot.spec.size] = 1.0
        self._decayed = decayed
        sizes = set(piece_sizes(job.batch_size, job.pieces))
        self._size = sizes.pop() if network.knows_batch and len(sizes) == 1 else None
        self._piece = tf.function(self._of_piece, autograph=False, jit_compile=job.compiled or None)

    def of_fit(self, standardization: Any, teacher: Any) -> "GradientOfBatch":
        """This one for windows standardized by float32 (2, channels), and the place of their teacher, int32.

        Augmentation and distillation have to know them.
        """
        if self._augmentation is None and self._distillation is None:
            return self
        found = copy(self)
        found._standardization = standardization
        found._place = None if self._distillation is None else teacher
        return found

    def _of_piece(
        self, trained: Any, statistics: Any, windows: Any, classes: Any, seed: Any, weights: Any, standardization: Any,
        place: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        layout, job, objective = self._network.layout, self._job, self._network.objective
        share = tf.cast(tf.shape(classes)[0], tf.float32) / job.batch_size
        true = classes
        if self._augmentation is not None:
            windows = self._augmentation(windows, standardization, seed)
        windows, classes = self._network.augmented(windows, classes, seed)
        if len(classes.shape) > 1:
            true = classes  # augment() may have moved positions: each weighs by the class that it has now
        taught = None
        if self._distillation is not None:
            with compiled_by_xla(job.compiled):
                taught = self._distillation(windows, standardization, place)
        with tf.GradientTape() as tape:
            tape.watch(trained)
            named = self._network.unpack(tf.concat([trained, statistics], 0))
            with compiled_by_xla(job.compiled):
                output = self._network.apply(named, windows, training=True, seed=seed)
            losses = objective.losses_at(classes, output.logits, smoothing=job.label_smoothing)
            if self._distillation is not None:
                losses = self._distillation.losses(losses, objective, output.logits, taught)
            losses = weighted(losses, true, self._class_weights, weights)
            loss = tf.reduce_sum(losses) / job.batch_size
            if output.penalty is not None:
                loss += share * output.penalty
        gradient = tape.gradient(loss, trained)
        hits = objective.hits(classes, output.logits)
        measured = [
            tf.reshape(output.statistics[slot.spec.name], [-1]) for slot in layout.slots if not slot.spec.trained
        ]
        new = tf.concat(measured, 0) if measured else tf.zeros([0])
        if job.l2:
            gradient += (share * job.l2) * (self._decayed * trained)
        return loss, hits, gradient, new * share

    def pieces(
        self, trained: Any, statistics: Any, windows: Any, classes: Any, sizes: Any, count: int, seed: Any,
        weights: Any = None,
    ) -> list[PieceGradient]:  # fmt: skip
        """`count` micro-batches of `sizes` windows, which follow each other in `windows` (n, steps, channels).

        `seed`, int32 (2,), is that of the first one's dropout; the next one's is one higher. `weights`, float32 (n,),
        is how much each window counts in the loss; None counts all alike.
        """
        own = [None] * count if weights is None else tf.split(weights, sizes, num=count)
        parts = list(zip(tf.split(windows, sizes, num=count), tf.split(classes, sizes, num=count), own, strict=True))
        if self._size is not None:
            for tensor in (tensor for part in parts for tensor in part if tensor is not None):
                tensor.set_shape([self._size, *tensor.shape[1:]])
        return [
            PieceGradient(
                *self._piece(
                    trained,
                    statistics,
                    part,
                    labels,
                    seed + tf.constant([0, k]),
                    weight,
                    self._standardization,
                    self._place,
                )
            )
            for k, (part, labels, weight) in enumerate(parts)
        ]

    def __call__(
        self, trained: Any, statistics: Any, windows: Any, classes: Any, seed: Any, weights: Any = None
    ) -> BatchGradient:
        """Gradient at `trained` (trained_size,) and new statistics (statistics_size,) of a whole batch.

        `windows` are (batch_size, steps, channels), `seed` int32 (2,): each micro-batch drops its own units. A
        gradient that is not finite is replaced by zeros, so that the parameters survive for a later look.
        """
        job = self._job
        sizes = piece_sizes(job.batch_size, job.pieces)
        pieces = self.pieces(trained, statistics, windows, classes, sizes, job.pieces, seed, weights)
        loss, hits = _sum([piece.loss for piece in pieces]), _sum([piece.hits for piece in pieces])
        gradient, new = _sum([piece.gradient for piece in pieces]), _sum([piece.statistics for piece in pieces])
        norm = block_norm(gradient, self._network.layout.trained_size)
        if job.clip_norm is not None:
            gradient *= job.clip_norm / tf.maximum(norm, job.clip_norm)
        finite = tf.math.is_finite(norm) & tf.math.is_finite(loss)
        gradient = either(finite, gradient, tf.zeros_like(gradient))
        new = either(finite, new, statistics)
        return BatchGradient(loss, hits, gradient, new, norm)


def _sum(values: Sequence[Any]) -> Any:
    return tree_sum(values, lambda a, b: a + b)
