"""What every optimizer does."""

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any, Self

from core.ground.lazy import tf
from core.inventory.fields import Choice, OptimizerFacts
from core.parameters import Layout


class Optimizer(OptimizerFacts, ABC):
    """How a gradient changes a shard. `slots` are created once per shard, beside the parameters."""

    @classmethod
    def of(cls, options: Choice) -> Self:
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
