"""Optimizers, one module each: updates of one shard on its parameter server.

Decoupled weight decay (arXiv 1711.05101) shrinks some elements of a shard before a step.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import Annotated, Any, Self

from pydantic import Field

from core.ground.lazy import tf
from core.inventory.extensions import OptimizerFacts
from core.inventory.fields import Choice
from core.parameters import Layout

EXTENSIONS = {
    "adam": "adam:Adam",
    "adamw": "adam:AdamW",
    "sgd": "sgd:MomentumSGD",
    "lion": "lion:Lion",
    "lamb": "lamb:Lamb",
    "rmsprop": "rmsprop:RMSprop",
    "adagrad": "adagrad:Adagrad",
}
"""Module and class by `jobs.train.optimizer.name`."""


class Optimizer(OptimizerFacts, ABC):
    """How a gradient changes a shard. `slots` are created once per shard, beside the parameters."""

    @classmethod
    def from_options(cls, options: Choice) -> Self:
        """Make the optimizer with the options named like its fields; others have their defaults."""
        values = {
            entry.name: getattr(options, entry.name)
            for entry in fields(cls)  # type: ignore[arg-type]
            if hasattr(options, entry.name)
        }
        return cls(**values)

    def within(self, layout: Layout, trained: tuple[int, int]) -> Self:
        """Return the optimizer for elements [start, stop) of the trained vector.

        An optimizer with weight decay looks up which of them decay.
        """
        return self

    @property
    @abstractmethod
    def slot_names(self) -> tuple[str, ...]:
        """Name the per-parameter slots.

        Each is a float32 vector of the shard's trained size, zeros at first.
        """

    @abstractmethod
    def stepped(
        self, parameters: Any, slots: Any, gradient: Any, rate: Any, count: Any
    ) -> tuple[Any, Any]:
        """One step on plain tensors: new parameters (n,) and new slots (len(slot_names), n).

        `rate` is the learning rate (float32 scalar), `count` how many updates came before this one
        (int64 scalar).
        """

    def apply(
        self, parameters: Any, slots: tuple[Any, ...], gradient: Any, rate: Any, count: Any
    ) -> Any:
        """Update `parameters` (a resource variable) and `slots` in place; returns the op.

        This one writes what `stepped` returns; an optimizer that TensorFlow has as one fused
        operation takes that.
        """
        if slots:
            slot_rows = tf.stack([slot.read_value() for slot in slots])
        else:
            slot_rows = tf.zeros([0, gradient.shape[0]])
        new, moved = self.stepped(parameters.read_value(), slot_rows, gradient, rate, count)
        with tf.control_dependencies([new, moved]):
            written = [
                slot.assign(moved[place], read_value=False) for place, slot in enumerate(slots)
            ]
            return tf.group(parameters.assign(new, read_value=False), *written)


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


def tensors_within(layout: Layout, trained: tuple[int, int]) -> list[tuple[int, bool]]:
    """Return what elements [start, stop) of the trained vector have of each tensor.

    Each is its size, and whether it decays.
    """
    start, stop = trained
    sizes = [
        (min(stop, slot.offset + slot.spec.size) - max(start, slot.offset), slot.spec.decayed)
        for slot in layout.slots
        if slot.spec.trained
    ]
    return [part for part in sizes if part[0] > 0]


def spared_parts(layout: Layout, trained: tuple[int, int]) -> tuple[tuple[int, bool], ...]:
    """Cut elements [start, stop) of the trained vector where the decay begins or ends.

    Each is its size, and whether it decays.
    """
    runs = groupby(tensors_within(layout, trained), key=lambda part: part[1])
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
