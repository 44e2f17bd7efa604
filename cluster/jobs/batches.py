"""Which windows each update sees: slices of a seeded permutation, an epoch at a time."""

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UsageError

Rows = NDArray[np.int32]


@dataclass(frozen=True)
class Update:
    """What one update is computed from. `id` counts the updates of the run from 0.

    `batches` are the numbers of its batches, counted over the run as well; `rows` has shape (batches, batch_size).
    """

    id: int
    batches: tuple[int, ...]
    rows: Rows


class Plan:
    """The batches of a whole run, and how they make updates.

    Every epoch is a fresh permutation of `rows`, cut into whole batches; the last few windows that fill none wait for
    another epoch's permutation. `replayed` more batches at the end of each epoch repeat those of highest loss. Each
    update is `batches_per_update` batches one after the other, the last of an epoch what is left.
    """

    def __init__(
        self, rows: Rows, batch_size: int, epochs: int, replayed: int, seed: int, batches_per_update: int = 1
    ) -> None:
        """Raises UsageError if there are fewer rows than a batch holds."""
        if len(rows) < batch_size:
            raise UsageError(
                f"jobs.train.batch_size: a batch of {batch_size} windows cannot be filled from {len(rows)} training "
                f"windows: set it to at most {len(rows)}"
            )
        self._rows, self._seed, self._group = rows, seed, batches_per_update
        self.batch_size, self.epochs = batch_size, epochs
        self._fresh = len(rows) // batch_size
        self.replayed = min(replayed, self._fresh)
        self.batches_per_epoch = self._fresh + self.replayed
        self.batches = epochs * self.batches_per_epoch
        self.fresh_updates = -(-self._fresh // batches_per_update)
        self.per_epoch = self.fresh_updates + -(-self.replayed // batches_per_update)
        self.updates = epochs * self.per_epoch

    def fresh(self, epoch: int) -> list[Update]:
        """The updates of `epoch` (from 0) that see each window once."""
        order = np.random.Generator(np.random.Philox(key=[self._seed, epoch])).permutation(len(self._rows))
        order = order[: self._fresh * self.batch_size].reshape(self._fresh, self.batch_size)
        first = epoch * self.batches_per_epoch
        return self._updates(epoch * self.per_epoch, range(first, first + self._fresh), self._rows[order])

    def replay(self, epoch: int, losses: Mapping[int, float]) -> list[Update]:
        """Updates over the batches of `epoch` whose `losses` (by number) were highest, under new numbers."""
        worst = heapq.nlargest(self.replayed, losses, key=lambda batch: (losses[batch], -batch))
        rows = {batch: rows for update in self.fresh(epoch) for batch, rows in zip(update.batches, update.rows,
                                                                                   strict=True)}  # fmt: skip
        first = epoch * self.batches_per_epoch + self._fresh
        again = np.stack([rows[batch] for batch in worst]) if worst else np.zeros((0, self.batch_size), np.int32)
        numbers = range(first, first + len(worst))
        return self._updates(epoch * self.per_epoch + self.fresh_updates, numbers, again)

    def _updates(self, first: int, batches: range, rows: Rows) -> list[Update]:
        return [
            Update(first + place, tuple(batches[start : start + self._group]), rows[start : start + self._group])
            for place, start in enumerate(range(0, len(rows), self._group))
        ]


def chunks(rows: Rows, size: int) -> Iterator[tuple[Rows, NDArray[np.float32]]]:
    """`rows` in pieces of exactly `size`, the last one filled up; with a weight of 1 for each that counts, else 0."""
    for start in range(0, len(rows), size):
        piece = rows[start : start + size]
        weights = np.zeros(size, np.float32)
        weights[: len(piece)] = 1.0
        yield np.resize(piece, size).astype(np.int32), weights
