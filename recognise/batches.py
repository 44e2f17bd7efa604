"""Windows of a recording in batches for a worker.

Windows that overlap share their samples, which halves the bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recognise.stream import Window


@dataclass(frozen=True)
class ResultRow:
    """One line of the result.

    time: of a window's middle, in seconds; note: why there is no label, empty for a window.
    """

    time: float
    note: str = ""


@dataclass(frozen=True)
class PackedWindows:
    """A batch of windows, and the samples from which they are cut.

    rows: in the order of time, of which `windows` are windows; samples: float32 (n, channels),
    zeros at the end; starts: int32 (most windows,), where each window begins among the samples, 0
    behind the last one.
    """

    rows: tuple[ResultRow, ...]
    windows: int
    samples: NDArray[np.float32]
    starts: NDArray[np.int32]


class WindowPacker:
    """A collector of windows, whose batches all have the same shapes."""

    def __init__(self, windows: int, window_steps: int, hop: int, channels: int) -> None:
        """A batch has at most `windows` windows."""
        self._most = windows
        self._steps = window_steps
        self._hop = min(hop, window_steps)
        self._channels = channels
        self.sample_rows = window_steps + (windows - 1) * self._hop
        """Samples of a batch: enough for windows that follow one another."""
        self._clear()

    def _clear(self) -> None:
        self._rows: list[ResultRow] = []
        self._parts: list[NDArray[np.float32]] = []
        self._starts: list[int] = []
        self._used = 0

    def add(self, window: Window) -> Sequence[PackedWindows]:
        """Add a window; return the batch that was full before it, if there is one."""
        follows = bool(self._starts) and not window.begins and self._hop < self._steps
        part = window.channels
        if follows:
            part = part[-self._hop :]
        full: Sequence[PackedWindows] = ()
        if len(self._starts) == self._most or self._used + len(part) > self.sample_rows:
            full = (self.taken(),)
            part = window.channels
        self._used += len(part)
        self._parts.append(part)
        self._starts.append(self._used - self._steps)
        self._rows.append(ResultRow(window.centre))
        return full

    def note(self, row: ResultRow) -> None:
        """Add a row without a window."""
        self._rows.append(row)

    def taken(self) -> PackedWindows:
        """Return the present batch, and begin the next one."""
        samples = np.zeros((self.sample_rows, self._channels), np.float32)
        if self._parts:
            samples[: self._used] = np.concatenate(self._parts)
        starts = np.zeros(self._most, np.int32)
        starts[: len(self._starts)] = self._starts
        batch = PackedWindows(tuple(self._rows), len(self._starts), samples, starts)
        self._clear()
        return batch
