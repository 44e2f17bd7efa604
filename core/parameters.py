"""Where each named parameter lies in the flat vector, and where that vector is cut into shards.

The vector is `[trained | statistics]`: everything an optimizer changes first, then the running
statistics of normalization layers, which are averaged instead. Order within each part is the order
of the specs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from core.ground.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]
else:
    Vector = Any

BLOCK = 1024
"""Elements of a block. Shard borders lie on block borders, and norms are summed by block, so that
neither the number of shards nor of workers changes a bit of the result."""


STATISTICS_RATE = 0.1
"""Share by which a statistic moves, at each update, towards what a batch measured."""


@dataclass(frozen=True)
class ParameterSpec:
    """One named tensor of a network.

    `trained=False` puts it in the statistics tail; `averaged=False` keeps what was measured before
    the first step, whatever a batch measures. `decayed=False` keeps the L2 term of the loss away
    from it (biases, normalization scales). `constraint` is a function of the tensor, traced,
    that is applied after each update; a tensor with one lies whole on one shard.
    """

    name: str
    shape: tuple[int, ...]
    trained: bool = True
    averaged: bool = True
    decayed: bool = True
    constraint: Callable[[Any], Any] | None = field(default=None, compare=False)

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
    """A key range of the vector on one parameter server.

    `trained` and `statistics` are two ranges, each `[start, stop)`.
    """

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
            raise ValueError(
                "parameter names must be unique, got"
                f" {sorted(n for n in names if names.count(n) > 1)}"
            )
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
        """Return the most shards there can be.

        They are blocks of trained parameters; one constrained tensor counts as one.
        """
        return len(self._borders) - 1

    @cached_property
    def constrained(self) -> tuple[Slot, ...]:
        """The slots that have a constraint."""
        return tuple(
            slot for slot in self.slots if slot.spec.trained and slot.spec.constraint is not None
        )

    @cached_property
    def decayed(self) -> Vector:
        """1 for each trained element that the L2 term of the loss pulls, else 0."""
        return self._marked(lambda spec: spec.decayed)[: self.trained_size]

    @cached_property
    def averaged(self) -> Vector:
        """1 for each statistic that follows what batches measure, else 0."""
        return self._marked(lambda spec: spec.averaged)[self.trained_size :]

    def _marked(self, is_so: Callable[[ParameterSpec], bool]) -> Vector:
        marks = [np.full(slot.spec.size, is_so(slot.spec), np.float32) for slot in self.slots]
        return np.concatenate([np.zeros(0, np.float32), *marks])

    @cached_property
    def _borders(self) -> list[int]:
        """Places where the trained part may be cut, its begin and end included."""
        blocks = range(BLOCK, self.trained_size, BLOCK)
        whole = [(slot.offset, slot.offset + slot.spec.size) for slot in self.constrained]
        inner = [
            border for border in blocks if not any(start < border < stop for start, stop in whole)
        ]
        return [0, *inner, self.trained_size]

    def pack(self, values: Mapping[str, NDArray[np.floating]]) -> Vector:
        """Flat vector, shape (size,), from named arrays.

        Raises ValueError on a missing name or a wrong shape.
        """
        flat = np.empty(self.size, dtype="<f4")
        for slot in self.slots:
            if slot.spec.name not in values:
                raise ValueError(f"no value for parameter {slot.spec.name!r}")
            value = np.asarray(values[slot.spec.name])
            if value.shape != slot.spec.shape:
                raise ValueError(
                    f"parameter {slot.spec.name!r}: expected shape {slot.spec.shape}, got"
                    f" {value.shape}"
                )
            flat[slot.offset : slot.offset + slot.spec.size] = value.ravel()
        return flat

    def unpack(self, flat: Vector) -> dict[str, Vector]:
        """Named views, each of its spec's shape, into a flat vector of shape (size,)."""
        if flat.shape != (self.size,):
            raise ValueError(f"expected a vector of {self.size} elements, got shape {flat.shape}")
        return {
            slot.spec.name: (
                flat[slot.offset : slot.offset + slot.spec.size].reshape(slot.spec.shape)
            )
            for slot in self.slots
        }

    def shards(self, count: int) -> tuple[Shard, ...]:
        """`count` key ranges of equal size to within one block, borders on block borders.

        Raises ValueError when there are more shards than blocks of trained parameters.
        """
        if count > self.blocks:
            largest = max(self.constrained, key=lambda slot: slot.spec.size, default=None)
            if largest is None:
                whole = ""
            else:
                whole = f", where each with a constraint ({largest.spec.name}) lies whole on one"
            raise ValueError(
                f"{self.trained_size} trained parameters cannot be cut into {count} shards of at"
                f" least {BLOCK}{whole}: use fewer parameter servers"
            )
        if self.constrained:
            trained = _cut_at(self._borders, count)
        else:
            trained = _cut(self.trained_size, count)
        statistics = _cut(self.statistics_size, count)
        return tuple(Shard(k, trained[k], statistics[k]) for k in range(count))


def _cut(size: int, count: int) -> list[tuple[int, int]]:
    blocks = -(-size // BLOCK)
    borders = [min(size, blocks * k // count * BLOCK) for k in range(count)] + [size]
    return list(pairwise(borders))


def _cut_at(borders: Sequence[int], count: int) -> list[tuple[int, int]]:
    """`count` ranges that begin and end at one of the `borders`, of about equal size."""
    chosen = [0]
    size = borders[-1]
    for k in range(1, count):
        candidates = borders[borders.index(chosen[-1]) + 1 : len(borders) - (count - k)]
        chosen.append(min(candidates, key=lambda border: abs(border - size * k // count)))
    chosen.append(size)
    return list(pairwise(chosen))
