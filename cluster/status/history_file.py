"""`history.jsonl` in a run's folder: written a line at a time, kept small, read whatever state it is in."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from cluster.atomic_write import atomic_write
from cluster.errors import ClusterError
from cluster.status.records import Record, finite

NAME = "history.jsonl"
LARGEST_BYTES = 4_000_000
"""Above that it is written anew, without what was thinned out since."""
LONGEST_LINE = 1_000_000


class HistoryFile:
    """The file of one run while its coordinator appends to it. A disk that takes nothing costs the history alone."""

    def __init__(self, folder: Path, everything: Callable[[], Sequence[Record]], largest: int = LARGEST_BYTES) -> None:
        """`everything()`: records for the whole file, for when it is written anew."""
        self.path = folder / NAME
        self._everything, self._largest = everything, largest
        self._whole = False
        """Whether the file holds all there is to hold."""
        self._size = 0
        self._floor = 0

    def write(self, records: Sequence[Record]) -> bool:
        """These too; whether the disk took them. What it did not take comes, with all the rest, once it takes some."""
        if not self._whole or self._size > max(self._largest, 2 * self._floor):
            return self.rewrite()
        if not records:
            return True
        content = b"".join(_line(record) for record in records)
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                written = os.write(descriptor, content)
            finally:
                os.close(descriptor)
        except OSError:
            written = 0
        self._size += written
        self._whole = written == len(content)
        return self._whole

    def rewrite(self) -> bool:
        """The whole file anew; whether the disk took it."""
        content = b"".join(_line(record) for record in self._everything())
        try:
            atomic_write(self.path, content)
        except ClusterError:
            return False
        self._whole, self._size, self._floor = True, len(content), len(content)
        return True


def read_records(folder: Path) -> Iterator[Record]:
    """The records of a run; none where there is no history. Lines that are no records are left out."""
    try:
        content = (folder / NAME).read_bytes()
    except OSError:
        return iter(())
    return _records(content.splitlines())


def _records(lines: Iterable[bytes]) -> Iterator[Record]:
    for line in lines:
        if len(line) > LONGEST_LINE:
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and isinstance(found.get("record"), str):
            yield found


def _line(record: Record) -> bytes:
    return json.dumps(finite(record), allow_nan=False, separators=(",", ":")).encode() + b"\n"
