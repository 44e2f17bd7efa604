"""What every optimizer does."""

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any, Self

from cluster.inventory.extensions import OptimizerFacts
from cluster.inventory.fields import Choice
from cluster.lazy import tf
from cluster.parameters import Layout


class Optimizer(OptimizerFacts, ABC):
    """How a gradient changes a shard. `slots` are created once per shard, beside the parameters."""

    @classmethod
    def of(cls, options: Choice) -> Self:
        """The optimizer with the options of the same names as its fields; a field without an option has its default."""
        given = {entry.name: getattr(options, entry.name) for entry in fields(cls) if hasattr(options, entry.name)}  # type: ignore[arg-type]
        return cls(**given)

    def within(self, layout: Layout, trained: tuple[int, int]) -> Self:
        """The optimizer for the elements [start, stop) of the trained vector; one that decays looks up which ones."""
        return self

    @property
    @abstractmethod
    def slot_names(self) -> tuple[str, ...]:
        """Names of the per-parameter slots, each a float32 vector of the shard's trained size, zeros at first."""

    @abstractmethod
    def stepped(self, parameters: Any, slots: Any, gradient: Any, rate: Any, count: Any) -> tuple[Any, Any]:
        """One step on plain tensors: new parameters (n,) and new slots (len(slot_names), n).

        `rate` is the learning rate (float32 scalar), `count` how many updates came before this one (int64 scalar).
        """

    def apply(self, parameters: Any, slots: tuple[Any, ...], gradient: Any, rate: Any, count: Any) -> Any:
        """Update `parameters` (a resource variable) and `slots` in place; returns the op.

        This one writes what `stepped` returns; an optimizer that TensorFlow has as one fused operation takes that.
        """
        kept = tf.stack([slot.read_value() for slot in slots]) if slots else tf.zeros([0, gradient.shape[0]])
        new, moved = self.stepped(parameters.read_value(), kept, gradient, rate, count)
        with tf.control_dependencies([new, moved]):
            written = [slot.assign(moved[place], read_value=False) for place, slot in enumerate(slots)]
            return tf.group(parameters.assign(new, read_value=False), *written)
