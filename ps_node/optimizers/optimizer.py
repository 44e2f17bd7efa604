"""What every optimizer does."""

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any, Self

from cluster.inventory.extensions import OptimizerFacts
from cluster.inventory.fields import Choice


class Optimizer(OptimizerFacts, ABC):
    """How a gradient changes a shard. `slots` are created once per shard, beside the parameters."""

    @classmethod
    def of(cls, options: Choice) -> Self:
        """The optimizer with the options of the same names as its fields; a field without an option has its default."""
        given = {entry.name: getattr(options, entry.name) for entry in fields(cls) if hasattr(options, entry.name)}  # type: ignore[arg-type]
        return cls(**given)

    @property
    @abstractmethod
    def slot_names(self) -> tuple[str, ...]:
        """Names of the per-parameter slots, each a float32 vector of the shard's trained size."""

    @abstractmethod
    def apply(self, parameters: Any, slots: tuple[Any, ...], gradient: Any, rate: Any, count: Any) -> Any:
        """Update `parameters` (a resource variable) in place; returns the op.

        `rate` is the learning rate (float32 scalar), `count` how many updates came before this one (int64 scalar).
        """

    @abstractmethod
    def stepped(self, parameters: Any, slots: Any, gradient: Any, rate: Any, count: Any) -> tuple[Any, Any]:
        """The same step on plain tensors: new parameters (n,) and new slots (len(slot_names), n)."""
