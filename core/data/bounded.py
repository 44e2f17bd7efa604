"""An iterator of examples that may never end.

It is bounded by bytes and by the disk, and reports while it is written.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from core.data.batch import Batch
from core.ground.errors import DataError

GIGABYTE = 10**9
LEAST_FREE_BYTES = 512 << 20
LOOK_BYTES = 64 << 20
"""Bytes written between two looks at the disk."""
SAY_SECONDS = 10.0


@dataclass(frozen=True)
class Bound:
    """How much an iterator may bring.

    `most_bytes` in all, which `key` sets, and what leaves room on a disk.
    """

    most_bytes: int
    key: str
    place: Path

    def of(
        self, batches: Iterator[Batch], where: str, say: Callable[[str], None]
    ) -> Iterator[Batch]:
        """The batches, with a line every ten seconds.

        Those that say how many rows there are end by themselves. Raises DataError beginning with
        `where`.
        """
        if getattr(batches, "rows", 0):
            return batches
        return self._counted(batches, where, say)

    def _counted(
        self, batches: Iterator[Batch], where: str, say: Callable[[str], None]
    ) -> Iterator[Batch]:
        rows = size = 0
        checked_bytes = -LOOK_BYTES
        reported_at = time.monotonic()
        for batch in batches:
            yield batch
            rows += len(batch.x)
            size += batch.x.nbytes + batch.y.nbytes
            brought = f"{rows:,} examples, {size / GIGABYTE:.2f} GB"
            if size > self.most_bytes:
                raise DataError(
                    f"{where}: brings more than {self.most_bytes / GIGABYTE:g} GB ({brought}):"
                    " expected an iterator that ends after each example came once: leave out"
                    f" `while True` and repeat(), or set {self.key} to more gigabytes"
                )
            if size - checked_bytes >= LOOK_BYTES:
                checked_bytes = size
                self._look(where, brought)
            if time.monotonic() - reported_at >= SAY_SECONDS:
                reported_at = time.monotonic()
                say(f"data: {brought} are written, and the iterator has more")

    def _look(self, where: str, brought: str) -> None:
        free = shutil.disk_usage(self.place).free
        if free < LEAST_FREE_BYTES:
            raise DataError(
                f"{where}: after {brought} the disk of {self.place} has {free >> 20} MiB left:"
                " expected an iterator that ends after each example came once, or a larger disk"
            )
