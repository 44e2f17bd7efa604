"""The gradients of slots: what every arithmetic computes of a part of a batch."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from core.models.native import SlotsOfBatch, SlotSums
from ps_node.steps import Nodes


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
    def of_fit(self, standardization: Any) -> Self:
        """Return this one for windows standardized by float32 (2, channels).

        Augmentation has to know them.
        """

    @abstractmethod
    def sums(
        self, vector: tuple[Any, Any], examples: LabelledExamples, cut: SlotsOfBatch, nodes: Nodes
    ) -> SlotSums:
        """Return the sums over each aligned subtree of a range of slots, rounded as on the wire.

        `vector` is the trained parameters and the statistics.
        """
