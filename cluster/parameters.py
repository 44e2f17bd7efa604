"""Where each named parameter lies in the flat vector, and where that vector is cut into shards.

The vector is `[trained | statistics]`: everything an optimizer changes first, then the running statistics of
normalization layers, which are averaged instead. Order within each part is the order of the specs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]
else:
    Vector = Any

BLOCK = 1024
"""Elements of a block. Shard borders lie on block borders, and norms are summed by block, so that neither the
number of shards nor of workers changes a bit of the result."""


STATISTICS_RATE = 0.1
"""By how much a statistic moves, at each update, from its value towards what a batch measured."""


@dataclass(frozen=True)
class ParameterSpec:
    """One named tensor of a network.

    `trained=False` puts it in the statistics tail; `decayed=False` keeps the L2 term of the loss away from it (biases,
    normalization scales).
    """

    name: str
    shape: tuple[int, ...]
    trained: bool = True
    decayed: bool = True

    @property
    def size(self) -> int:
        """Elements of the tensor."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class Slot:
    """A parameter's place: elements `[offset, offset + spec.size)` of the flat vector."""

    spec: ParameterSpec
    offset: int


@dataclass(frozen=True)
class Shard:
    """A key range of the vector on one parameter server: trained `[start, stop)` and statistics `[start, stop)`."""

    index: int
    trained: tuple[int, int]
    statistics: tuple[int, int]

    @property
    def size(self) -> int:
        """Elements held, statistics included."""
        return self.trained[1] - self.trained[0] + self.statistics[1] - self.statistics[0]


class Layout:
    """The order of named parameters in the flat float32 vector."""

    def __init__(self, specs: Sequence[ParameterSpec]) -> None:
        names = [spec.name for spec in specs]
        if len(set(names)) != len(names):
            raise ValueError(f"parameter names must be unique, got {sorted(n for n in names if names.count(n) > 1)}")
        slots: list[Slot] = []
        offset = 0
        for spec in sorted(specs, key=lambda spec: not spec.trained):
            slots.append(Slot(spec, offset))
            offset += spec.size
        self.slots: tuple[Slot, ...] = tuple(slots)
        self.size = offset
        self.trained_size = sum(spec.size for spec in specs if spec.trained)
        self.statistics_size = self.size - self.trained_size

    @property
    def blocks(self) -> int:
        """Blocks of trained parameters: the most shards there can be."""
        return max(1, -(-self.trained_size // BLOCK))

    def pack(self, values: Mapping[str, NDArray[np.floating]]) -> Vector:
        """Flat vector, shape (size,), from named arrays. Raises ValueError on a missing name or a wrong shape."""
        flat = np.empty(self.size, dtype="<f4")
        for slot in self.slots:
            if slot.spec.name not in values:
                raise ValueError(f"no value for parameter {slot.spec.name!r}")
            value = np.asarray(values[slot.spec.name])
            if value.shape != slot.spec.shape:
                raise ValueError(f"parameter {slot.spec.name!r}: expected shape {slot.spec.shape}, got {value.shape}")
            flat[slot.offset : slot.offset + slot.spec.size] = value.ravel()
        return flat

    def unpack(self, flat: Vector) -> dict[str, Vector]:
        """Named views, each of its spec's shape, into a flat vector of shape (size,)."""
        if flat.shape != (self.size,):
            raise ValueError(f"expected a vector of {self.size} elements, got shape {flat.shape}")
        return {
            slot.spec.name: flat[slot.offset : slot.offset + slot.spec.size].reshape(slot.spec.shape)
            for slot in self.slots
        }

    def shards(self, count: int) -> tuple[Shard, ...]:
        """`count` key ranges of equal size to within one block, borders on block borders.

        Raises ValueError when there are more shards than blocks of trained parameters.
        """
        trained = _cut(self.trained_size, count)
        statistics = _cut(self.statistics_size, count)
        if any(start == stop for start, stop in trained):
            raise ValueError(
                f"{self.trained_size} trained parameters cannot be cut into {count} shards of at least "
                f"{BLOCK}: use fewer parameter servers"
            )
        return tuple(Shard(k, trained[k], statistics[k]) for k in range(count))


def _cut(size: int, count: int) -> list[tuple[int, int]]:
    blocks = -(-size // BLOCK)
    borders = [min(size, blocks * k // count * BLOCK) for k in range(count)] + [size]
    return [(borders[k], borders[k + 1]) for k in range(count)]
