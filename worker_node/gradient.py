"""The gradient of a batch by the flat vector: slots in a fixed tree of sums, L2, clipping.

The library computes any range of slots in one call, TensorFlow one graph a slot, side by side.
"""

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from core.engine.codecs.fp32 import Fp32
from core.ground.lazy import np, tf
from core.inventory.slots import LIBRARY
from core.inventory.training import TrainJob
from core.inventory.training_sections import AugmentSettings
from core.models.native import OWN_THREADS, NativeNetwork, RowsOfSet, SlotsOfBatch, SlotSums
from core.models.network import BuiltIn, Network, Problem
from core.models.operations import compiled_by_xla
from core.models.window_statistics import AXES, Augmentation, on_sensors
from kernels.library import operations
from ps_node.arithmetic import arithmetic_of, either
from ps_node.nodes import Nodes, Penalty
from worker_node.recordings import LossWeights, weighted


def slot_sizes(batch_size: int, slots: int) -> list[int]:
    """Windows of each slot: equal to within one, and the same on every worker."""
    borders = [batch_size * k // slots for k in range(slots + 1)]
    return [end - begin for begin, end in pairwise(borders)]


@dataclass(frozen=True)
class LabelledExamples:
    """Examples of neighbouring slots.

    `inputs` are (n, *input_shape), `targets` (n, *target_shape); `sizes`, int32 (slots,), says how
    many each slot has. `weights`, float32 (n,), is how much each counts in the loss, None alike.
    """

    inputs: Any
    targets: Any
    sizes: Any
    weights: Any = None


class SlotGradients(ABC):
    """Computes the slots of a batch, and adds up their nodes [gradient | statistics]."""

    @abstractmethod
    def of_fit(self, standardization: Any, rows: RowsOfSet | None = None) -> Self:
        """Return this one for windows standardized by float32 (2, channels).

        Augmentation has to know them. `rows` says which windows come, if that is known.
        """

    @abstractmethod
    def sums(
        self, vector: tuple[Any, Any], examples: LabelledExamples, cut: SlotsOfBatch, nodes: Nodes
    ) -> SlotSums:
        """Return the sums over each aligned subtree of a range of slots, rounded as on the wire.

        `vector` is the trained parameters and the statistics.
        """


class NativeSlotGradients(SlotGradients):
    """The library's gradients: the same bits on every processor, for any range of slots."""

    def __init__(
        self, network: BuiltIn, job: TrainJob, weights: LossWeights, *, threads: int
    ) -> None:
        self._network = NativeNetwork(network, threads=threads)
        self._job = job
        self._class_weights = weights.table
        self._standardization: Any = None
        self._rows: RowsOfSet | None = None

    def of_fit(self, standardization: Any, rows: RowsOfSet | None = None) -> "NativeSlotGradients":
        """Return this one for windows so standardized."""
        fitted = copy(self)
        fitted._standardization = standardization
        fitted._rows = rows
        return fitted

    def sums(
        self, vector: tuple[Any, Any], examples: LabelledExamples, cut: SlotsOfBatch, nodes: Nodes
    ) -> SlotSums:
        """Compute the slots in one call; where the wire rounds, each slot apart."""
        rows = self._rows
        windows = examples.inputs
        augment = self._job.augment
        if augment is not None and (augment.rotation_degrees or augment.time_warp):
            problem = self._network.network.problem
            windows = augmented(problem, augment, windows, self._standardization, cut)
            rows = None  # a window has other samples each time
        slot_sums = self._network.gradient(
            vector,
            (windows, examples.targets),
            self._weights(examples),
            cut,
            self._job.label_smoothing,
            apart=not nodes.exact,
            rows=rows,
        )
        if nodes.exact:
            return slot_sums
        sums = []
        reached = 0
        for size in cut.subtrees:
            sums.append(nodes.total(slot_sums.nodes[reached : reached + size]))
            reached += size
        return SlotSums(sums, slot_sums.losses, slot_sums.hits)

    def _weights(self, examples: LabelledExamples) -> Any:
        if self._class_weights is None:
            return examples.weights
        of_class = tf.gather(tf.constant(self._class_weights), examples.targets)
        if examples.weights is None:
            return of_class
        return of_class * examples.weights


def augmented(
    problem: Problem,
    augment: AugmentSettings,
    windows: Any,
    standardization: Any,
    cut: SlotsOfBatch,
) -> Any:
    """Return standardized windows (n, steps, channels) as the library turns and warps them."""
    settings = tf.concat([[cut.first_row], cut.seed], 0)

    def changed(signals: Any, moments: Any, degrees: float, warp: float) -> Any:
        changed_signals = operations().pscluster_augmented(
            windows=signals, standardization=moments, settings=settings, factors=[degrees, warp]
        )
        return tf.ensure_shape(changed_signals, signals.shape)

    degrees = augment.rotation_degrees
    if not degrees or AXES * len(problem.sensors) == problem.channels:
        return changed(windows, standardization, degrees, augment.time_warp)
    # The library takes all channels for axes of sensors: it turns these alone, and warps all.
    windows = on_sensors(
        problem,
        windows,
        standardization,
        lambda signals, moments: changed(signals, moments, degrees, 0.0),
    )
    return changed(windows, standardization, 0.0, augment.time_warp)


class TensorFlowSlotGradients(SlotGradients):
    """Automatic gradients of any network that TensorFlow computes."""

    def __init__(self, network: Network, job: TrainJob, weights: LossWeights) -> None:
        self._network = network
        self._job = job
        self._standardization: Any = None
        self._augmentation = Augmentation.from_settings(job.augment, network.problem)
        self._class_weights = weights.table
        sizes = set(slot_sizes(job.batch_size, job.pieces))
        self._size = sizes.pop() if network.knows_batch and len(sizes) == 1 else None
        self._slot = tf.function(self._of_slot, autograph=False, jit_compile=job.compiled or None)

    def of_fit(
        self, standardization: Any, rows: RowsOfSet | None = None
    ) -> "TensorFlowSlotGradients":
        """Return this one for windows so standardized."""
        del rows
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


@dataclass(frozen=True)
class BatchGradient:
    """The result of one batch: mean loss, right answers, push, gradient's norm before clipping."""

    loss: Any
    hits: Any
    gradient: Any
    statistics: Any
    norm: Any


class GradientOfBatch:
    """Computes a batch in slots, and adds their results in a fixed tree.

    The tree is binary.
    """

    def __init__(
        self,
        network: Network,
        job: TrainJob,
        weights: LossWeights | None = None,
        *,
        threads: int = OWN_THREADS,
    ) -> None:
        """`weights`: how much each class counts in the loss; None counts all alike.

        `threads`: of one call of the library.
        """
        weights = weights or LossWeights()
        layout = network.layout
        self._layout = layout
        self._job = job
        self._slots: SlotGradients
        if job.arithmetic == LIBRARY:
            assert isinstance(network, BuiltIn)
            self._slots = NativeSlotGradients(network, job, weights, threads=threads)
        else:
            self._slots = TensorFlowSlotGradients(network, job, weights)
        self._arithmetic = arithmetic_of(job.arithmetic)
        self._nodes = Nodes(Fp32(), layout.trained_size, self._arithmetic)
        self._penalty = Penalty.for_elements(job.l2, layout)

    def of_fit(self, standardization: Any, rows: RowsOfSet | None = None) -> "GradientOfBatch":
        """Return this one for windows so standardized, see `SlotGradients.of_fit`."""
        fitted = copy(self)
        fitted._slots = self._slots.of_fit(standardization, rows)
        return fitted

    def sums(
        self,
        vector: tuple[Any, Any],
        examples: LabelledExamples,
        part: tuple[Any, Any],
        seed: Any,
        nodes: Nodes,
        *,
        ragged: bool = False,
    ) -> SlotSums:
        """Return the sums over `part`, (first, count), of a batch's slots, without the L2 term.

        `first` is a number, or int32 where the slots are one aligned subtree or `ragged`, as many
        as there are. `seed`, int32 (2,), is the batch's. `nodes` rounds as on the wire.
        """
        job = self._job
        cut = SlotsOfBatch(job.batch_size, job.pieces, *part, seed, ragged)
        return self._slots.sums(vector, examples, cut, nodes)

    def __call__(
        self,
        trained: Any,
        statistics: Any,
        windows: Any,
        classes: Any,
        seed: Any,
        weights: Any = None,
    ) -> BatchGradient:
        """Return the gradient and the new statistics of a whole batch.

        `trained` is (trained_size,), the statistics are (statistics_size,).

        `windows` are (batch_size, steps, channels), `seed` int32 (2,): each slot drops its own
        units. `weights`, float32 (batch_size,), is how much each window counts in the loss. A
        gradient that is not finite is replaced by zeros, so that the parameters survive for a later
        look.
        """
        job = self._job
        sizes = tf.constant(slot_sizes(job.batch_size, job.pieces))
        examples = LabelledExamples(windows, classes, sizes, weights)
        whole = (tf.constant(0), job.pieces)
        slot_sums = self.sums((trained, statistics), examples, whole, seed, self._nodes)
        loss = tf.reduce_sum(slot_sums.losses)
        (node,) = slot_sums.nodes
        size = self._layout.trained_size
        gradient = self._penalty.added(node[:size], trained)
        norm = self._arithmetic.norm(self._arithmetic.block_squares(gradient, size))
        if job.clip_norm is not None:
            gradient *= job.clip_norm / tf.maximum(norm, job.clip_norm)
        finite = tf.math.is_finite(norm) & tf.math.is_finite(loss)
        gradient = either(finite, gradient, tf.zeros_like(gradient))
        measured = tf.where(np.asarray(self._layout.averaged, bool), node[size:], statistics)
        new = either(finite, measured, statistics)
        return BatchGradient(loss, tf.reduce_sum(slot_sums.hits), gradient, new, norm)
