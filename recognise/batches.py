"""Windows of a recording in batches for a worker. Windows that overlap share their samples, which halves the bytes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recognise.stream import Window


@dataclass(frozen=True)
class Row:
    """One line of the result: a window by its middle in seconds, or with a `note` what has no label, and why."""

    time: float
    note: str = ""


@dataclass(frozen=True)
class Batch:
    """Up to so many windows, and the samples that they are cut from.

    rows: in the order of time, of which `windows` are windows; samples: float32 (n, channels), zeros at the end;
    starts: int32 (most windows,), where each window begins among the samples, 0 behind the last one.
    """

    rows: tuple[Row, ...]
    windows: int
    samples: NDArray[np.float32]
    starts: NDArray[np.int32]


class Batches:
    """Collects windows; every batch has the same shapes."""

    def __init__(self, windows: int, window_steps: int, hop: int, channels: int) -> None:
        """`windows`: the most of a batch."""
        self._most, self._steps, self._hop, self._channels = windows, window_steps, min(hop, window_steps), channels
        self.sample_rows = window_steps + (windows - 1) * self._hop
        """Samples of a batch: enough for windows that follow one another."""
        self._clear()

    def _clear(self) -> None:
        self._rows: list[Row] = []
        self._parts: list[NDArray[np.float32]] = []
        self._starts: list[int] = []
        self._used = 0

    def add(self, window: Window) -> Sequence[Batch]:
        """The batch that was full before this window, if there is one."""
        follows = bool(self._starts) and not window.begins and self._hop < self._steps
        part = window.channels[-self._hop :] if follows else window.channels
        full: Sequence[Batch] = ()
        if len(self._starts) == self._most or self._used + len(part) > self.sample_rows:
            full, part = (self.taken(),), window.channels
        self._used += len(part)
        self._parts.append(part)
        self._starts.append(self._used - self._steps)
        self._rows.append(Row(window.centre))
        return full

    def note(self, row: Row) -> None:
        """Add a row without a window."""
        self._rows.append(row)

    def taken(self) -> Batch:
        """What is held, and begin the next batch."""
        samples = np.zeros((self.sample_rows, self._channels), np.float32)
        if self._parts:
            samples[: self._used] = np.concatenate(self._parts)
        starts = np.zeros(self._most, np.int32)
        starts[: len(self._starts)] = self._starts
        batch = Batch(tuple(self._rows), len(self._starts), samples, starts)
        self._clear()
        return batch
