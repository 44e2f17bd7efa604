"""The gradient of a batch by the flat vector: slots in a fixed tree of sums, L2, clipping."""

from copy import copy
from dataclasses import dataclass
from typing import Any

from core.engine.codecs.fp32 import Fp32
from core.ground.lazy import np, tf
from core.inventory.slots import LIBRARY
from core.inventory.training import TrainJob
from core.models.native import OWN_THREADS, SlotsOfBatch, SlotSums
from core.models.network import BuiltIn, Network
from ps_node.arithmetic import arithmetic_of, either
from ps_node.steps import Nodes, Penalty
from worker_node.native_gradient import NativeSlotGradients
from worker_node.slots import LabelledExamples, SlotGradients, slot_sizes
from worker_node.tensorflow_gradient import TensorFlowSlotGradients
from worker_node.weights import LossWeights


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
        self._penalty = Penalty.of(job.l2, layout)

    def of_fit(self, standardization: Any) -> "GradientOfBatch":
        """Return this one for windows so standardized, see `SlotGradients.of_fit`."""
        fitted = copy(self)
        fitted._slots = self._slots.of_fit(standardization)
        return fitted

    def takes_any_count(self, nodes: Nodes) -> bool:
        """Return whether `sums` takes a number of slots that only the call knows, int32."""
        return self._job.arithmetic == LIBRARY and nodes.exact

    def sums(
        self,
        vector: tuple[Any, Any],
        examples: LabelledExamples,
        part: tuple[Any, Any],
        seed: Any,
        nodes: Nodes,
    ) -> SlotSums:
        """Return the sums over `part`, (first, count), of a batch's slots, without the L2 term.

        `first` is a number, or int32 where the slots are one aligned subtree. `seed`, int32 (2,),
        is the batch's. `nodes` rounds as on the wire.
        """
        job = self._job
        cut = SlotsOfBatch(job.batch_size, job.pieces, *part, seed)
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
