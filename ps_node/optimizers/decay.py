"""Decoupled weight decay (arXiv 1711.05101): which elements of a shard shrink before a step."""

from dataclasses import dataclass, replace
from itertools import groupby
from typing import Annotated, Any, Self

from pydantic import Field

from core.ground.lazy import tf
from core.parameters import Layout
from ps_node.optimizers.optimizer import Optimizer

WeightDecay = Annotated[
    float, Field(ge=0.0, lt=1.0, description="share of a weight lost per update, times the step")
]
DecayBiases = Annotated[
    bool,
    Field(
        description=(
            "whether the decay also shrinks biases and the scales and shifts of normalization"
        )
    ),
]


def spared_parts(layout: Layout, trained: tuple[int, int]) -> tuple[tuple[int, bool], ...]:
    """Cut elements [start, stop) of the trained vector into neighbouring parts.

    Each is its size, and whether it decays.
    """
    start, stop = trained
    sizes = [
        (min(stop, slot.offset + slot.spec.size) - max(start, slot.offset), slot.spec.decayed)
        for slot in layout.slots
        if slot.spec.trained
    ]
    runs = groupby((part for part in sizes if part[0] > 0), key=lambda part: part[1])
    return tuple((sum(size for size, _ in run), decays) for decays, run in runs)


@dataclass(frozen=True)
class DecayingOptimizer(Optimizer):
    """Parameters shrink by `rate * weight_decay` before the step."""

    weight_decay: float = 0.0
    decay_biases: bool = True
    """Whether parameters with `decayed=False` in their `ParameterSpec` shrink too."""
    spans: tuple[tuple[int, bool], ...] = ()
    """Sizes and whether they decay, from `spared_parts`; without any, everything decays."""

    def within(self, layout: Layout, trained: tuple[int, int]) -> Self:
        """Look up which elements of the shard decay."""
        if self.decay_biases:
            return self
        return replace(self, spans=spared_parts(layout, trained))

    def shrunk(self, parameters: Any, rate: Any) -> Any:
        """`parameters` (n,) after the decay. Those that do not decay keep every bit."""
        factor = 1.0 - rate * self.weight_decay
        if all(decays for _, decays in self.spans):
            return parameters * factor
        pieces = tf.split(parameters, [size for size, _ in self.spans])
        decayed = [
            piece * factor if decays else piece
            for piece, (_, decays) in zip(pieces, self.spans, strict=True)
        ]
        return tf.concat(decayed, 0)
