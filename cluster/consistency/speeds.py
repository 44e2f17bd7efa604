"""How fast each worker is: what the calibration says at first, then the running median of what it took."""

from collections import deque
from collections.abc import Callable, Mapping, Set
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
        self._usual = median(self._calibration.values()) if self._calibration else 1.0
        self._measured: dict[int, deque[float]] = {}
        self._known: set[tuple[int, int]] = set()
        # A policy is asked for each idle worker after each reply: what a reply does not change is not counted again.
        self._medians: dict[int, float] = {}
        self.version = 0
        """Changes with every measurement."""
        self._unit: float | None = None
        self._total: tuple[Set[int], float] | None = None
        self._fastest: tuple[Set[int], list[float]] | None = None

    def observe(self, task: int, slots: int, seconds: float) -> None:
        """A worker took so long for so many micro-batches, pull and push included.

        Its first reply of each size is left out: the graph is instantiated on the worker then.
        """
        if (task, slots) not in self._known:
            self._known.add((task, slots))
        elif seconds > 0:
            seen = self._measured.setdefault(task, deque(maxlen=HISTORY))
            seen.append(slots / seconds)
            self._medians[task] = median(seen)
            self._unit = self._total = self._fastest = None
            self.version += 1

    def of(self, task: int) -> float:
        """Micro-batches a second; before the first measurement of any worker, only the ratios mean something."""
        if task in self._medians:
            return self._medians[task]
        if self._unit is None:
            self._unit = self._measured_unit()
        return self._calibration.get(task, self._usual) * self._unit

    def _measured_unit(self) -> float:
        """Micro-batches a second for one unit of the calibration."""
        ratios = [speed / self._calibration.get(task, self._usual) for task, speed in self._medians.items()]
        return median(ratios) if ratios else 1.0

    def share(self, task: int, live: Set[int]) -> float:
        """The part of all work that this worker should do, from 0 to 1."""
        everybody = live if task in live else live | {task}
        if self._total is None or (self._total[0] is not everybody and self._total[0] != everybody):
            self._total = everybody, sum(self.of(other) for other in everybody)
        return self.of(task) / self._total[1]

    def _fastest_other(self, task: int, live: Set[int]) -> float:
        """Of the live workers but this one."""
        if self._fastest is None or (self._fastest[0] is not live and self._fastest[0] != live):
            self._fastest = live, sorted((self.of(other) for other in live), reverse=True)[:2]
        first, *second = self._fastest[1]
        return second[0] if task in live and second and self.of(task) == first else first

    def left(self, task: int, slots: int, seconds: float) -> float:
        """Micro-batches still to be done of `slots` that a worker has been at for so long."""
        return max(0.0, slots - seconds * self.of(task))

    def worth_while(
        self, task: int, slots: int, remaining: int, busy: Callable[[], float], live: Set[int]
    ) -> bool:  # fmt: skip
        """Whether everything ends sooner if this worker does `slots` of the `remaining` micro-batches.

        The others, who have `busy()` micro-batches of what they are at still to do, would need
        max((remaining + busy) / their speed, slots / the fastest one's speed).
        """
        if len(live) == (task in live):
            return True
        ours = slots / self.of(task)
        # Nearly always true of a worker that is about as fast as the others, without looking at each of them.
        if ours <= PATIENCE * (slots / self._fastest_other(task, live)):
            return True
        return ours <= PATIENCE * ((remaining + busy()) / sum(self.of(other) for other in live - {task}))
