"""How fast each worker is: what the calibration says at first, then the running median of what it took."""

from collections import deque
from collections.abc import Mapping, Set
from statistics import median

HISTORY = 16
"""Replies that a median is over: enough to shrug off an outlier, few enough to notice a node that turned slow."""

PATIENCE = 1.5
"""A worker is passed over when waiting for it would take this many times as long as doing without it."""


class Speeds:
    """Micro-batches a second of each worker."""

    def __init__(self, calibration: Mapping[int, float] | None = None) -> None:
        """`calibration`: how fast the workers are, in any unit, by task; a worker that is not in it counts as usual."""
        self._calibration = dict(calibration or {})
        self._measured: dict[int, deque[float]] = {}
        self._known: set[tuple[int, int]] = set()

    def observe(self, task: int, slots: int, seconds: float) -> None:
        """A worker took so long for so many micro-batches, pull and push included.

        Its first reply of each size is left out: the graph is instantiated on the worker then.
        """
        if (task, slots) not in self._known:
            self._known.add((task, slots))
        elif seconds > 0:
            self._measured.setdefault(task, deque(maxlen=HISTORY)).append(slots / seconds)

    def of(self, task: int) -> float:
        """Micro-batches a second; before the first measurement of any worker, only the ratios mean something."""
        if task in self._measured:
            return median(self._measured[task])
        usual = median(self._calibration.values()) if self._calibration else 1.0
        return self._calibration.get(task, usual) * self._unit()

    def _unit(self) -> float:
        """Micro-batches a second for one unit of the calibration."""
        usual = median(self._calibration.values()) if self._calibration else 1.0
        ratios = [median(seen) / self._calibration.get(task, usual) for task, seen in self._measured.items()]
        return median(ratios) if ratios else 1.0

    def share(self, task: int, live: Set[int]) -> float:
        """The part of all work that this worker should do, from 0 to 1."""
        return self.of(task) / sum(self.of(other) for other in live | {task})

    def left(self, task: int, slots: int, seconds: float) -> float:
        """Micro-batches still to be done of `slots` that a worker has been at for so long."""
        return max(0.0, slots - seconds * self.of(task))

    def worth_while(self, task: int, slots: int, remaining: int, busy: float, live: Set[int]) -> bool:
        """Whether everything ends sooner if this worker does `slots` of the `remaining` micro-batches.

        The others, who have `busy` micro-batches of what they are at still to do, would need
        max((remaining + busy) / their speed, slots / the fastest one's speed).
        """
        others = live - {task}
        if not others:
            return True
        speeds = [self.of(other) for other in others]
        without = max((remaining + busy) / sum(speeds), slots / max(speeds))
        return slots / self.of(task) <= PATIENCE * without
