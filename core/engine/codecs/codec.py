"""What every codec does.

A codec turns `size` float32 values into `words(size)` float32 elements and back. Other types travel
as the bits of float32 elements, because one tensor a shard travels each way (docs/engine.md); no
operation of a codec computes with such an element, so none changes its bits. All sizes are known
when a function is traced. Equal input gives equal bits, whatever the number of threads.
"""

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any, Self

from core.inventory.fields import Choice, CodecFacts


class Codec(CodecFacts, ABC):
    """How values travel."""

    @classmethod
    def of(cls, options: Choice) -> Self:
        """Make the codec of the options that are named like its fields.

        Other fields keep their defaults.
        """
        field_names = {entry.name for entry in fields(cls)}  # type: ignore[arg-type]
        option_names = field_names & set(type(options).model_fields)
        return cls(**{name: getattr(options, name) for name in option_names})

    def within(self, updates_an_epoch: int) -> Self:
        """This codec in a training of so many updates an epoch."""
        del updates_an_epoch
        return self

    @property
    def memory_rows(self) -> int:
        """Count the rows of the memory that a sender keeps between its pushes.

        It is float32 (memory_rows, size), zeros at first.
        """
        return 0

    @property
    def stateless(self) -> bool:
        """Whether the sender keeps nothing, so that what travels depends on the values alone."""
        return self.memory_rows == 0

    @property
    def varies(self) -> bool:
        """Return whether the wire's size depends on the update.

        Then `words` is the size that it ends with.
        """
        return False

    def limited(self, values: Any, workers: Any) -> Any:
        """The whole vector, before its shards' parts are encoded: a place to cut it by its norm.

        `workers`, float32, is how many are in the cluster now.
        """
        del workers
        return values

    def encode_update(self, values: Any, memory: Any, update: Any) -> tuple[Any, Any]:
        """`encode` for the update of this number, int64."""
        del update
        return self.encode(values, memory)

    @abstractmethod
    def words(self, size: int) -> int:
        """Float32 elements on the wire for `size` values."""

    @abstractmethod
    def encode(self, values: Any, memory: Any) -> tuple[Any, Any]:
        """Return wire float32 (words(size),) and new memory.

        `values` are float32 (size,), `memory` is (memory_rows, size).
        """

    @abstractmethod
    def decode(self, wire: Any, size: int) -> Any:
        """Values float32 (size,) from wire float32 (words(size),)."""
