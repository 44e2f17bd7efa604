"""Which windows each update sees: slices of a seeded permutation, an epoch at a time."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UsageError

Rows = NDArray[np.int32]


@dataclass(frozen=True)
class Batch:
    """The rows of one update. `id` counts all updates of the run from 0."""

    id: int
    rows: Rows


class Plan:
    """The batches of a whole run.

    Every epoch is a fresh permutation of `rows`, cut into whole batches; the last few windows that fill none wait for
    another epoch's permutation. `replayed` more batches at the end of each epoch repeat those of highest loss.
    """

    def __init__(self, rows: Rows, batch_size: int, epochs: int, replayed: int, seed: int) -> None:
        """Raises UsageError if there are fewer rows than a batch holds."""
        if len(rows) < batch_size:
            raise UsageError(
                f"jobs.train.batch_size: a batch of {batch_size} windows cannot be filled from {len(rows)} training "
                f"windows: set it to at most {len(rows)}"
            )
        self._rows, self._seed = rows, seed
        self.batch_size, self.epochs = batch_size, epochs
        self._fresh = len(rows) // batch_size
        self.replayed = min(replayed, self._fresh)
        self.per_epoch = self._fresh + self.replayed
        self.updates = epochs * self.per_epoch

    def fresh(self, epoch: int) -> Iterator[Batch]:
        """The batches of `epoch` (from 0), each window once."""
        order = np.random.Generator(np.random.Philox(key=[self._seed, epoch])).permutation(len(self._rows))
        first = epoch * self.per_epoch
        for k in range(self._fresh):
            yield Batch(first + k, self._rows[order[k * self.batch_size : (k + 1) * self.batch_size]])

    def replay(self, epoch: int, losses: dict[int, float], batches: dict[int, Batch]) -> Iterator[Batch]:
        """The batches of `epoch` again whose `losses` (by id) were highest, under new ids."""
        worst = heapq.nlargest(self.replayed, losses, key=lambda identifier: (losses[identifier], -identifier))
        first = epoch * self.per_epoch + self._fresh
        for k, identifier in enumerate(worst):
            yield Batch(first + k, batches[identifier].rows)


def chunks(rows: Rows, size: int) -> Iterator[tuple[Rows, NDArray[np.float32]]]:
    """`rows` in pieces of exactly `size`, the last one filled up; with a weight of 1 for each that counts, else 0."""
    for start in range(0, len(rows), size):
        piece = rows[start : start + size]
        weights = np.zeros(size, np.float32)
        weights[: len(piece)] = 1.0
        yield np.resize(piece, size).astype(np.int32), weights
