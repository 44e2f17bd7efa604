"""The gradients of slots by TensorFlow: one graph a slot, side by side."""

from copy import copy
from typing import Any

from core.ground.lazy import tf
from core.inventory.training import TrainJob
from core.models.augmentation import Augmentation
from core.models.kernels import compiled_by_xla
from core.models.native import SlotsOfBatch, SlotSums
from core.models.network import Network
from ps_node.steps import Nodes
from worker_node.slots import LabelledExamples, SlotGradients, slot_sizes
from worker_node.weights import LossWeights, weighted


class TensorFlowSlotGradients(SlotGradients):
    """Automatic gradients of any network that TensorFlow computes."""

    def __init__(self, network: Network, job: TrainJob, weights: LossWeights) -> None:
        self._network = network
        self._job = job
        self._standardization: Any = None
        self._augmentation = Augmentation.of(job.augment, network.problem)
        self._class_weights = weights.table
        sizes = set(slot_sizes(job.batch_size, job.pieces))
        self._size = sizes.pop() if network.knows_batch and len(sizes) == 1 else None
        self._slot = tf.function(self._of_slot, autograph=False, jit_compile=job.compiled or None)

    def of_fit(self, standardization: Any) -> "TensorFlowSlotGradients":
        """Return this one for windows so standardized."""
        if self._augmentation is None:
            return self
        fitted = copy(self)
        fitted._standardization = standardization
        return fitted

    def _of_slot(
        self,
        trained: Any,
        statistics: Any,
        windows: Any,
        classes: Any,
        seed: Any,
        weights: Any,
        standardization: Any,
    ) -> tuple[Any, ...]:
        layout = self._network.layout
        job = self._job
        objective = self._network.objective
        share = tf.cast(tf.shape(classes)[0], tf.float32) / job.batch_size
        true = classes
        if self._augmentation is not None:
            windows = self._augmentation(windows, standardization, seed)
        windows, classes = self._network.augmented(windows, classes, seed)
        if len(classes.shape) > 1:
            # augment() may have moved positions: each weighs by the class that it has now
            true = classes
        with tf.GradientTape() as tape:
            tape.watch(trained)
            named = self._network.unpack(tf.concat([trained, statistics], 0))
            with compiled_by_xla(job.compiled):
                output = self._network.apply(named, windows, training=True, seed=seed)
            losses = objective.losses_at(classes, output.logits, smoothing=job.label_smoothing)
            losses = weighted(losses, true, self._class_weights, weights)
            loss = tf.reduce_sum(losses) / job.batch_size
            if output.penalty is not None:
                loss += share * output.penalty
        gradient = tape.gradient(loss, trained)
        hits = objective.hits(classes, output.logits)
        measured = [
            tf.reshape(output.statistics[slot.spec.name], [-1])
            for slot in layout.slots
            if not slot.spec.trained
        ]
        if measured:
            new = tf.concat(measured, 0)
        else:
            new = tf.zeros([0])
        return loss, hits, tf.concat([gradient, new * share], 0)

    def sums(
        self, vector: tuple[Any, Any], examples: LabelledExamples, cut: SlotsOfBatch, nodes: Nodes
    ) -> SlotSums:
        """Compute each slot for itself, then add up.

        The dropout of the next slot has the seed of this one and one more.
        """
        seed = cut.seed + tf.stack([0, cut.first])
        by_slot = [
            self._slot(*vector, *part, seed + tf.constant([0, k]), weight, self._standardization)
            for k, (*part, weight) in enumerate(self._parts(examples, cut.count))
        ]
        losses, hits, leaves = zip(*by_slot, strict=True)
        rounded = [nodes.rounded(leaf) for leaf in leaves]
        sums = []
        reached = 0
        for size in cut.subtrees:
            sums.append(nodes.total(rounded[reached : reached + size]))
            reached += size
        return SlotSums(sums, tf.stack(losses), tf.stack(hits))

    def _parts(self, examples: LabelledExamples, count: int) -> list[tuple[Any, Any, Any]]:
        """Return inputs, targets and weights of each slot."""
        if examples.weights is None:
            weights = [None] * count
        else:
            weights = tf.split(examples.weights, examples.sizes, num=count)
        slot_examples = list(
            zip(
                tf.split(examples.inputs, examples.sizes, num=count),
                tf.split(examples.targets, examples.sizes, num=count),
                weights,
                strict=True,
            )
        )
        if self._size is not None:
            for tensor in (
                tensor for part in slot_examples for tensor in part if tensor is not None
            ):
                tensor.set_shape([self._size, *tensor.shape[1:]])
        return slot_examples
