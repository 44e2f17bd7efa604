"""Windows with a hop, cut from rows as they come; at most one window of rows is kept."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from recognise.stream.parts import Kept, Part, refuse


class Cutter:
    """State: the rows that a later window needs, and the number of the first of them."""

    def __init__(self, window_steps: int, hop: int, columns: int) -> None:
        self._steps, self._hop = window_steps, hop
        self._rest: NDArray[np.float32] = np.empty((0, columns), np.float32)
        self._first = 0
        self._begin = 0

    @property
    def due(self) -> int:
        """The number of the row that makes the next window whole."""
        return self._begin + self._steps - 1

    @property
    def rows(self) -> int:
        """How many rows came."""
        return self._first + len(self._rest)

    def state(self) -> dict[str, Part]:
        """For `resume`."""
        return {"rows": self._rest, "first": self._first, "begin": self._begin}

    def resume(self, kept: Kept) -> None:
        """Continue where another one of the same window and hop had this state. Raises UsageError."""
        rest = kept.array("rows", np.float32, (None, self._rest.shape[1]))
        first, begin = kept.count("first"), kept.count("begin")
        # Rows are kept from the begin of the next window on; with a hop beyond the window it may lie ahead.
        waits = len(rest) == 0 and 0 < begin - first <= self._hop
        if not (waits or (begin == first and len(rest) < self._steps)):
            raise refuse("rows of less than a window, from its begin on", (len(rest), first, begin))
        self._rest, self._first, self._begin = rest, first, begin

    def push(self, rows: NDArray[np.float32]) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Each window that ends in these rows, float32 (window_steps, columns), after the number of its last row."""
        held = np.concatenate([self._rest, rows])
        found = []
        while self._begin + self._steps <= self._first + len(held):
            start = self._begin - self._first
            found.append((self._begin + self._steps - 1, held[start : start + self._steps].copy()))
            self._begin += self._hop
        past = min(self._begin - self._first, len(held))
        self._rest = held[past:].copy()
        self._first += past
        return iter(found)
