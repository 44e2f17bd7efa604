"""How workers agree: one module a mode, with its policy, its options and its facts.

The interface of all policies is here, the workers' speeds, and the tree of a step's parts. A policy
decides which piece of work may start where and when. It knows no socket, no clock and no
TensorFlow.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from heapq import heapify, heapreplace
from statistics import median
from typing import Protocol, TypeVar

EXTENSIONS = {
    "async": "asynchronous:Asynchronous",
    "ssp": "ssp:BoundedStaleness",
    "sync": "synchronous:Synchronous",
    "local": "local:LocalSteps",
    "allreduce": "allreduce:Allreduce",
    "single": "single:Single",
    "mirrored": "mirrored:Mirrored",
}
"""Module and class by the word in `jobs.train.mode`, in the order of the tables."""


@dataclass(frozen=True)
class Grant:
    """Permission to compute: slots `[first, first + slots)` of each of some updates in a row.

    They are `updates` updates from `update` on, one after the other, in one call.
    """

    update: int
    first: int
    slots: int
    updates: int = 1

    @property
    def numbers(self) -> range:
        """The numbers of its updates."""
        return range(self.update, self.update + self.updates)


class Policy(Protocol):
    """Decides what an idle worker may begin now. Pure: the time is an argument."""

    step_seconds: float
    """Time of a step whose parts were all dealt out at once; 0.0 where no step is."""
    most_updates: int
    """Updates of a grant at most; at 0 the workers' functions do one, of an aligned subtree."""

    def begin(self, updates: range) -> None:
        """Start a new stretch of updates, after the last one was completed or cancelled."""

    def draw(self, task: int, live: frozenset[int], now: float) -> Grant | None:
        """The grant that worker `task` begins now; None if it may or should not begin one yet.

        `live` are the workers of the cluster, `now` a time in seconds that never runs backwards.
        """

    def replied(self, grant: Grant, task: int, seconds: float, done: int | None = None) -> range:
        """Record the first reply to a grant, and the seconds of the worker's own work an update.

        `done` of its updates were done, all without it. Return the updates that are complete with
        the reply.
        """

    def exhausted(self) -> bool:
        """Whether everything of the stretch has been granted."""

    def withdrawn(self) -> list[Grant]:
        """Grants under way that became superfluous since the last call."""

    def counted(self, update: int) -> list[int]:
        """Return the slots of a complete update, ascending.

        With a quorum they are fewer than all.
        """


HISTORY = 16
"""Replies in a median: enough to ignore an outlier, few enough to notice a node that became slow.
"""

PATIENCE = 1.5
"""A worker gets no work when waiting for it would take this many times as long as the others would
need."""

LEAST_COMPUTING = 1 / 8
"""Part of a reply's time that counts as computing at least, however long the fixed time seems."""


SEVERAL_SECONDS = 0.5
"""A call of several updates takes about so long at most: a drain, a cancel and the figures of a run
wait for its end. By then the coordinator's part of a call (1 to 3 ms) is small."""


MOST_UPDATES = 16
"""Updates of a call at most. With 16 a call's own cost is a sixteenth, and more than as many
figures do not fit into an answer (`core.engine.codecs`)."""


def updates_in_call(seconds: float, most: int) -> int:
    """Return how many updates of so many seconds a call of SEVERAL_SECONDS has: 1 to `most`.

    Take the last reply's seconds where they are more than usual: on a node that became slow a call
    of many updates would last long.
    """
    return max(1, min(most, int(SEVERAL_SECONDS / seconds)))


class Speeds:
    """Slots a second of each worker, once a part has begun.

    The calibration gives them at first, then the running median of a worker's replies. What a part
    costs whatever its size (pull, push, the calls) is no slowness: counted as such, it would make
    the parts of a worker that had small ones smaller yet. Replies to parts of two sizes show it.
    """

    def __init__(self, calibration: Mapping[int, float] | None = None) -> None:
        """`calibration`: speeds by task, in any unit; a worker without one counts as the median."""
        self._calibration = dict(calibration or {})
        if self._calibration:
            self._usual = median(self._calibration.values())
        else:
            self._usual = 1.0
        self._replies: dict[int, deque[tuple[int, float]]] = {}
        """The last updates in each worker's replies: slots, seconds."""
        self._fixed: dict[int, float] = {}
        self.fixed_seconds = 0.0
        """Time that a part of any size takes: the median of the workers'."""
        self._known: set[tuple[int, int]] = set()
        # Policies decide for each idle worker after each reply: values that a reply does not change
        # are cached.
        self._medians: dict[int, float] = {}
        self._unit: float | None = None
        """Slots a second for one unit of the calibration."""
        self._total: tuple[Set[int], float] | None = None
        self._fastest: tuple[Set[int], list[float]] | None = None

    def observe(self, task: int, slots: int, seconds: float, updates: int = 1) -> None:
        """Record the seconds that a worker took for `slots` slots of each of some updates.

        Pull and push are included. The first reply of each size does not count: the worker
        instantiates the graph then. One reply is never the most of the HISTORY.
        """
        if (task, slots) not in self._known:
            self._known.add((task, slots))
        elif seconds > 0:
            replies = self._replies.setdefault(task, deque(maxlen=HISTORY))
            replies.extend([(slots, seconds)] * min(updates, HISTORY // 2 - 1))
            self._fit(task, replies)
            self._medians[task] = median(
                size / max(took - self.fixed_seconds, took * LEAST_COMPUTING)
                for size, took in replies
            )
            self._unit = self._total = self._fastest = None

    def _fit(self, task: int, replies: Iterable[tuple[int, float]]) -> None:
        """Note the worker's fixed time: of the line through its smallest and its largest parts."""
        by_size: dict[int, list[float]] = {}
        for size, took in replies:
            by_size.setdefault(size, []).append(took)
        few = min(by_size)
        many = max(by_size)
        if few < many:
            line = many * median(by_size[few]) - few * median(by_size[many])
            self._fixed[task] = max(0.0, line / (many - few))
            self.fixed_seconds = median(self._fixed.values())

    @property
    def are_measured(self) -> bool:
        """Whether a reply says what time a slot takes."""
        return bool(self._medians)

    def seconds(self, slots: float, speed: float) -> float:
        """Return the time that a part takes at this speed."""
        return self.fixed_seconds + slots / speed

    def latest_seconds(self, task: int, slots: int) -> float:
        """Return the time of an update of so many slots by the worker's last reply; 0.0 before."""
        if task not in self._replies:
            return 0.0
        size, seconds = self._replies[task][-1]
        return seconds * slots / size

    @property
    def measured(self) -> Set[int]:
        """The workers of which a reply says what time a slot takes."""
        return self._medians.keys()

    def dealt(self, slots: int, workers: Iterable[int]) -> dict[int, int]:
        """Return how many of so many slots each worker computes so that all end soonest.

        Each slot goes to the worker that would end first with it, which is best for equal pieces on
        workers of any speed. Workers without a slot are missing; the others have the order of
        `workers`.
        """
        speeds = {task: self.speed_of(task) for task in workers}
        ends = [(self.seconds(1, speed), task) for task, speed in speeds.items()]
        heapify(ends)
        counts = dict.fromkeys(speeds, 0)
        for _ in range(slots):
            _, task = ends[0]
            counts[task] += 1
            heapreplace(ends, (self.seconds(counts[task] + 1, speeds[task]), task))
        return {task: count for task, count in counts.items() if count}

    def speed_of(self, task: int) -> float:
        """Return slots a second; only ratios count before the first measurement."""
        if task in self._medians:
            return self._medians[task]
        if self._unit is None:
            ratios = [
                speed / self._calibration.get(other, self._usual)
                for other, speed in self._medians.items()
            ]
            if ratios:
                self._unit = median(ratios)
            else:
                self._unit = 1.0
        return self._calibration.get(task, self._usual) * self._unit

    def share(self, task: int, live: Set[int]) -> float:
        """The part of all work that this worker should do, from 0 to 1."""
        if task in live:
            workers = live
        else:
            workers = live | {task}
        if self._total is None or (self._total[0] is not workers and self._total[0] != workers):
            self._total = workers, sum(self.speed_of(other) for other in workers)
        return self.speed_of(task) / self._total[1]

    def _fastest_other(self, task: int, live: Set[int]) -> float:
        """Return the speed of the fastest live worker but this one."""
        if self._fastest is None or (self._fastest[0] is not live and self._fastest[0] != live):
            self._fastest = live, sorted((self.speed_of(other) for other in live), reverse=True)[:2]
        first, *second = self._fastest[1]
        if task in live and second and self.speed_of(task) == first:
            return second[0]
        return first

    def left(self, task: int, slots: int, seconds: float) -> float:
        """Slots left of `slots` that a worker began `seconds` ago."""
        return max(0.0, slots - max(0.0, seconds - self.fixed_seconds) * self.speed_of(task))

    def worth_while(
        self, task: int, slots: int, remaining: int, busy: Callable[[], float], live: Set[int]
    ) -> bool:
        """Return whether everything ends sooner with this worker.

        It would do `slots` of the `remaining` slots.

        The others, with `busy()` slots of their own grants left, would need
        max((remaining + busy) / their speed, slots / the fastest one's speed), and the fixed time.
        """
        if len(live) == (task in live):
            return True
        own_seconds = self.seconds(slots, self.speed_of(task))
        # True of nearly every worker about as fast as the others, without a look at each of them.
        if own_seconds <= PATIENCE * self.seconds(slots, self._fastest_other(task, live)):
            return True
        their_speed = sum(self.speed_of(other) for other in live if other != task)
        return own_seconds <= PATIENCE * self.seconds(remaining + busy(), their_speed)


class WholeUpdates:
    """A policy that grants all slots of an update at once, and waits for each grant."""

    def __init__(self, slots: int, speeds: Speeds) -> None:
        """`slots` slots an update."""
        self._slots = slots
        self.speeds = speeds
        self.most_updates = 0
        self.step_seconds = 0.0
        self.begin(range(0))

    def begin(self, updates: range) -> None:
        """Start with the first update."""
        self._next = updates.start
        self._stop = updates.stop

    def exhausted(self) -> bool:
        """Return whether every update was granted."""
        return self._next >= self._stop

    def withdrawn(self) -> list[Grant]:
        """Return no grant: none ever becomes superfluous."""
        return []

    def counted(self, update: int) -> list[int]:
        """Return all slots."""
        return list(range(self._slots))


class WholeSteps(WholeUpdates):
    """One step after the other, each granted whole.

    It goes to one process, or to all workers in one call.
    """

    def begin(self, updates: range) -> None:
        """Start with no step under way."""
        super().begin(updates)
        self._open = False

    def draw(self, task: int, live: frozenset[int], now: float) -> Grant | None:
        """Grant the next step once the one before is complete; None until then."""
        if self._open or self.exhausted():
            return None
        self._open = True
        return Grant(self._next, 0, self._slots)

    def replied(self, grant: Grant, task: int, seconds: float, done: int | None = None) -> range:
        """Take the step as complete."""
        self._next = self._next + 1
        self._open = False
        return grant.numbers


# The fixed binary tree over the slots of a step. Leaves 0..n-1 are paired (0, 1), (2, 3),
# ...; the sums are paired again, an odd one is carried up. Every worker adds an aligned subtree in
# the same order, so sums have the same bits however the leaves were distributed.

Value = TypeVar("Value")


def tree_sum(values: Sequence[Value], add: Callable[[Value, Value], Value]) -> Value:
    """The sum of at least one value, added in pairs of neighbours, again and again."""
    level = list(values)
    while len(level) > 1:
        level = [
            add(level[k], level[k + 1]) if k + 1 < len(level) else level[k]
            for k in range(0, len(level), 2)
        ]
    return level[0]


def largest_subtree(first: int, leaves: int, limit: int) -> int:
    """Return how many leaves the largest subtree from leaf `first` on has, at most `limit`.

    It is at least 1, whatever is `limit`.
    """
    best = size = 1
    while first % (2 * size) == 0:
        size *= 2
        count = min(size, leaves - first)
        if count > limit:
            break
        best = count
        if count < size:
            break
    return best


def subtree_sizes(leaves: int) -> tuple[int, ...]:
    """Every number of leaves that an aligned subtree of a tree of `leaves` can have, ascending."""
    sizes = {1}
    size = 2
    while size < 2 * leaves:
        sizes |= {min(size, leaves - first) for first in range(0, leaves, size)}
        size *= 2
    return tuple(sorted(sizes))
