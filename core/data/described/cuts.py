"""Windows of the samples of one session: each of one label, or of one that most samples have."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.data.described.series import NO_LABEL, Stretch
from core.data.intake import SPARSE
from core.data.recordings import Cutting
from core.data.windows import Pair

AT_ONCE = 1024
"""Windows that are gathered at a time."""

Starts = NDArray[np.intp]


@dataclass(frozen=True)
class _Cut:
    pair: Pair
    samples: Callable[[], NDArray[np.float32]]
    pieces: list[tuple[int, Starts]]
    """Activities and where their windows begin."""


class Cuts:
    """Where windows begin, and how many there are by person, session and activity."""

    def __init__(self, stretches: Iterable[tuple[Pair, Stretch]], cutting: Cutting) -> None:
        self.counts: dict[tuple[Pair, int], int] = {}
        self.longest = 0
        """Samples of the longest stretch of one label."""
        self.sparse = 0
        """Windows that were left out because their readings are too far apart."""
        self._steps = cutting.window_steps
        self._stride = cutting.window_stride
        self._share = cutting.label_share
        self._cuts: list[_Cut] = []
        for pair, stretch in stretches:
            if self._share >= 1.0:
                pieces = self._pure(stretch)
            else:
                pieces = self._most(stretch)
            self._add(pair, stretch, pieces)

    def windows(self) -> Iterator[tuple[Pair, int, NDArray[np.float32]]]:
        """Yield windows, (n, window_steps, channels), with their pair and activity."""
        for cut in self._cuts:
            views = np.lib.stride_tricks.sliding_window_view(cut.samples(), self._steps, axis=0)
            for activity, starts in cut.pieces:
                for begin in range(0, len(starts), AT_ONCE):
                    windows = views[starts[begin : begin + AT_ONCE]]
                    yield cut.pair, activity, windows.transpose(0, 2, 1)

    def _add(self, pair: Pair, stretch: Stretch, pieces: Iterable[tuple[int, Starts]]) -> None:
        total = np.concatenate([[0.0], np.cumsum(stretch.wide, dtype=np.float64)])
        dense_pieces = []
        for activity, starts in pieces:
            mean = (total[starts + self._steps] - total[starts]) / self._steps
            dense = starts[mean <= SPARSE]
            self.sparse += len(starts) - len(dense)
            if len(dense):
                key = pair, activity
                self.counts[key] = self.counts.get(key, 0) + len(dense)
                dense_pieces.append((activity, dense))
        if dense_pieces:
            self._cuts.append(_Cut(pair, stretch.samples, dense_pieces))

    def _pure(self, stretch: Stretch) -> Iterator[tuple[int, Starts]]:
        """Yield the starts within each run of one label."""
        ends = [*(np.flatnonzero(np.diff(stretch.labels)) + 1).tolist(), len(stretch.labels)]
        begin = 0
        for end in ends:
            activity = int(stretch.labels[begin])
            if activity != NO_LABEL:
                self.longest = max(self.longest, end - begin)
                yield activity, np.arange(begin, end - self._steps + 1, self._stride)
            begin = end

    def _most(self, stretch: Stretch) -> Iterator[tuple[int, Starts]]:
        """Yield the starts of windows in which a label has its share."""
        self.longest = max(self.longest, len(stretch.labels))
        starts = np.arange(0, len(stretch.labels) - self._steps + 1, self._stride)
        for activity in np.unique(stretch.labels):
            if activity != NO_LABEL:
                total = np.concatenate([[0], np.cumsum(stretch.labels == activity)])
                share = (total[starts + self._steps] - total[starts]) / self._steps
                yield int(activity), starts[share >= self._share]
