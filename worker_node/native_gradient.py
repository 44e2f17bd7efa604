"""The gradients of slots by the library: one call for any range of them."""

from copy import copy
from typing import Any

from core.ground.lazy import tf
from core.inventory.training import TrainJob
from core.inventory.training_sections import AugmentSettings
from core.models.augmentation import on_sensors
from core.models.native import NativeNetwork, SlotsOfBatch, SlotSums
from core.models.network import BuiltIn, Problem
from core.models.window_statistics import AXES
from kernels.library import operations
from ps_node.steps import Nodes
from worker_node.slots import LabelledExamples, SlotGradients
from worker_node.weights import LossWeights


class NativeSlotGradients(SlotGradients):
    """The library's gradients: the same bits on every processor, for any range of slots."""

    def __init__(
        self, network: BuiltIn, job: TrainJob, weights: LossWeights, *, threads: int
    ) -> None:
        self._network = NativeNetwork(network, threads=threads)
        self._job = job
        self._class_weights = weights.table
        self._standardization: Any = None

    def of_fit(self, standardization: Any) -> "NativeSlotGradients":
        """Return this one for windows so standardized."""
        fitted = copy(self)
        fitted._standardization = standardization
        return fitted

    def sums(
        self, vector: tuple[Any, Any], examples: LabelledExamples, cut: SlotsOfBatch, nodes: Nodes
    ) -> SlotSums:
        """Compute the slots in one call; where the wire rounds, each slot apart."""
        windows = augmented(
            self._network.network.problem,
            self._job.augment,
            examples.inputs,
            self._standardization,
            cut,
        )
        slot_sums = self._network.gradient(
            vector,
            (windows, examples.targets),
            self._weights(examples),
            cut,
            self._job.label_smoothing,
            apart=not nodes.exact,
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
    augment: AugmentSettings | None,
    windows: Any,
    standardization: Any,
    cut: SlotsOfBatch,
) -> Any:
    """Return standardized windows (n, steps, channels) as the library turns and warps them."""
    if augment is None or not (augment.rotation_degrees or augment.time_warp):
        return windows
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
