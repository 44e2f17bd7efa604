"""The labels over time: of each stretch, the label of most of its windows.

Pure, and bounded in memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass

MOST_STRETCHES = 1024
SHORTEST_SECONDS = 10.0


@dataclass(frozen=True)
class Span:
    """One label without a break; seconds since the first window."""

    label: int
    begin: float
    end: float


class Band:
    """Counts windows by stretches of time, which double whenever there are too many of them."""

    def __init__(self, labels: int, hop_seconds: float) -> None:
        self._labels = labels
        self._seconds = max(SHORTEST_SECONDS, 2 * hop_seconds)
        self._counts: dict[int, list[int]] = {}

    def add(self, time: float, label: int) -> None:
        """Count a window by its middle, in seconds."""
        self._counts.setdefault(int(time // self._seconds), [0] * self._labels)[label] += 1
        while len(self._counts) > MOST_STRETCHES:
            counts: dict[int, list[int]] = {}
            for place, stretch in self._counts.items():
                both = counts.setdefault(place // 2, [0] * self._labels)
                both[:] = [before + more for before, more in zip(both, stretch, strict=True)]
            self._seconds = 2 * self._seconds
            self._counts = counts

    def spans(self) -> Sequence[Span]:
        """Return the spans in the order of time; a stretch with no label ends a span."""
        spans: list[Span] = []
        first = min(self._counts, default=0)
        for place in sorted(self._counts):
            counts = self._counts[place]
            label = counts.index(max(counts))
            begin, end = ((edge - first) * self._seconds for edge in (place, place + 1))
            if spans and spans[-1].label == label and spans[-1].end == begin:
                spans[-1] = Span(label, spans[-1].begin, end)
            else:
                spans.append(Span(label, begin, end))
        return spans
