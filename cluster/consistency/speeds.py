"""The speed of each worker: the calibration's at first, then the running median of its replies."""

from collections import deque
from collections.abc import Callable, Mapping, Set
from statistics import median

HISTORY = 16
"""Replies in a median: enough to ignore an outlier, few enough to notice a node that became slow."""

PATIENCE = 1.5
"""A worker gets no work when waiting for it would take this many times as long as the others would need."""


class Speeds:
    """Micro-batches a second of each worker."""

    def __init__(self, calibration: Mapping[int, float] | None = None) -> None:
        """`calibration`: speeds by task, in any unit; a worker without one counts as the median."""
        self._calibration = dict(calibration or {})
        self._usual = median(self._calibration.values()) if self._calibration else 1.0
        self._measured: dict[int, deque[float]] = {}
        self._known: set[tuple[int, int]] = set()
        # Policies decide for each idle worker after each reply: values that a reply does not change are cached.
        self._medians: dict[int, float] = {}
        self.version = 0
        """Changes with every measurement."""
        self._unit: float | None = None
        self._total: tuple[Set[int], float] | None = None
        self._fastest: tuple[Set[int], list[float]] | None = None

    def observe(self, task: int, slots: int, seconds: float) -> None:
        """Record the seconds that a worker took for `slots` micro-batches, pull and push included.

        The first reply of each size does not count: the worker instantiates the graph then.
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
        """Micro-batches a second; only ratios are meaningful before the first measurement of any worker."""
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
        workers = live if task in live else live | {task}
        if self._total is None or (self._total[0] is not workers and self._total[0] != workers):
            self._total = workers, sum(self.of(other) for other in workers)
        return self.of(task) / self._total[1]

    def _fastest_other(self, task: int, live: Set[int]) -> float:
        """Of the live workers but this one."""
        if self._fastest is None or (self._fastest[0] is not live and self._fastest[0] != live):
            self._fastest = live, sorted((self.of(other) for other in live), reverse=True)[:2]
        first, *second = self._fastest[1]
        return second[0] if task in live and second and self.of(task) == first else first

    def left(self, task: int, slots: int, seconds: float) -> float:
        """Micro-batches left of `slots` that a worker began `seconds` ago."""
        return max(0.0, slots - seconds * self.of(task))

    def worth_while(
        self, task: int, slots: int, remaining: int, busy: Callable[[], float], live: Set[int]
    ) -> bool:  # fmt: skip
        """Whether everything ends sooner if this worker does `slots` of the `remaining` micro-batches.

        The others, with `busy()` micro-batches of their own grants left, would need
        max((remaining + busy) / their speed, slots / the fastest one's speed).
        """
        if len(live) == (task in live):
            return True
        ours = slots / self.of(task)
        # True of nearly every worker about as fast as the others, without a look at each of them.
        if ours <= PATIENCE * (slots / self._fastest_other(task, live)):
            return True
        return ours <= PATIENCE * ((remaining + busy()) / sum(self.of(other) for other in live - {task}))
