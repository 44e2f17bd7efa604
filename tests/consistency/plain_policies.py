"""The policies as they are defined, without a thought for their cost: what the product's must decide alike."""

from collections import deque
from collections.abc import Mapping, Set
from dataclasses import dataclass
from statistics import median

from cluster.consistency.policy import Grant, WholeUpdates, largest_subtree

HISTORY = 16
"""Replies that a median is over: enough to shrug off an outlier, few enough to notice a node that turned slow."""

PATIENCE = 1.5
"""A worker is passed over when waiting for it would take this many times as long as doing without it."""


class PlainSpeeds:
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


RETRY_STEPS = 32
"""Steps after which a worker that got nothing in them gets a micro-batch all the same: it may have become faster."""


@dataclass
class _Part:
    """A grant under way: who is at it since when, and who does it a second time."""

    task: int
    since: float
    backups: int = 0


class PlainSynchronous:
    """One step after the other; a step's micro-batches are dealt out as aligned subtrees, by measured speed.

    All of them must come, or `quorum` of them (Chen et al., arXiv 1604.00981: then the result depends on who was
    late). A worker that has nothing else to do repeats a part that takes too long, at most `backup_workers` at a time;
    whichever copy comes first counts and the parameter servers drop the other.
    """

    def __init__(self, slots: int, speeds: PlainSpeeds, quorum: int | None = None, backup_workers: int = 0) -> None:
        self._slots, self.speeds, self._backup_workers = slots, speeds, backup_workers
        self._quorum = min(quorum or slots, slots)
        self._counted: dict[int, list[int]] = {}
        self._withdrawn: list[Grant] = []
        self._served_at: dict[int, int] = {}
        """By worker: the step in which it last got something, or first asked."""
        self._passed_over: set[int] = set()
        """Workers that got nothing although nothing was under way, since a worker got something on its merits."""
        self.begin(range(0))

    def begin(self, updates: range) -> None:
        """See Policy."""
        self._step, self._stop = updates.start, updates.stop
        self._withdrawn.clear()
        self._open_step()

    def _open_step(self) -> None:
        self._cursor = 0
        self._parts: dict[Grant, _Part] = {}
        self._came: list[int] = []
        self._served: set[int] = set()
        # The last two only: a step's successor asks what it consists of, nobody else does.
        self._counted = {step: slots for step, slots in self._counted.items() if step >= self._step - 2}

    def draw(self, task: int, live: frozenset[int], now: float) -> Grant | None:
        """See Policy."""
        if self._step >= self._stop:
            return None
        remaining = self._slots - self._cursor
        if not remaining:
            return self._backup(task, now)
        if self._passes_over(task, remaining, live, now):
            return None
        share = self.speeds.share(task, live)
        # The first round deals out the whole step, later ones what is left of it.
        wanted = round((remaining if task in self._served else self._slots) * share)
        wanted = min(wanted, remaining - sum(self._owed(other) for other in live if other != task))
        grant = Grant(self._step, self._cursor, largest_subtree(self._cursor, self._slots, max(1, wanted)))
        self._cursor += grant.slots
        self._parts[grant] = _Part(task, now)
        self._served.add(task)
        self._served_at[task] = self._step
        return grant

    def _owed(self, task: int) -> bool:
        """Whether it is time for a worker to show anew how fast it is."""
        return self._step - self._served_at.get(task, self._step) >= RETRY_STEPS

    def _passes_over(self, task: int, remaining: int, live: frozenset[int], now: float) -> bool:
        """Whether the step had better be left to the others."""
        self._served_at.setdefault(task, self._step)
        busy = sum(self.speeds.left(part.task, grant.slots, now - part.since) for grant, part in self._parts.items())
        if self.speeds.worth_while(task, 1, remaining, busy, live):
            self._passed_over.clear()
            return False
        if self._owed(task):
            return False
        if self._parts:
            return True
        # Nobody is at it, and it is asked a second time, so that everybody idle has been asked meanwhile: the faster
        # ones do not answer any more, and may take minutes to be given up.
        again = task in self._passed_over
        self._passed_over.add(task)
        return not again

    def _backup(self, task: int, now: float) -> Grant | None:
        if sum(part.backups for part in self._parts.values()) >= self._backup_workers:
            return None
        for grant, part in self._parts.items():
            late = now - part.since > PATIENCE * grant.slots / self.speeds.of(part.task)
            if part.task != task and not part.backups and late:
                part.backups += 1
                return grant
        return None

    def replied(self, grant: Grant, task: int, seconds: float) -> bool:
        """See Policy."""
        self.speeds.observe(task, grant.slots, seconds)
        if grant.update != self._step or self._parts.pop(grant, None) is None:
            return False
        self._came += range(grant.first, grant.first + grant.slots)
        if len(self._came) < self._quorum:
            return False
        self._counted[self._step] = sorted(self._came)
        self._withdrawn += self._parts
        self._step += 1
        self._open_step()
        return True

    def exhausted(self) -> bool:
        """See Policy."""
        return self._step >= self._stop

    def withdrawn(self) -> list[Grant]:
        """See Policy."""
        grants, self._withdrawn = self._withdrawn, []
        return grants

    def counted(self, update: int) -> list[int]:
        """See Policy."""
        return self._counted[update]


class PlainAsynchronous(WholeUpdates):
    """Every worker goes on at once; an update is applied as it arrives.

    With several micro-batches a grant is always the whole update. The last updates of a stretch are not given to a
    worker so slow that everybody would wait for it.
    """

    def __init__(self, slots: int, speeds: PlainSpeeds) -> None:
        """`slots` micro-batches an update."""
        self._slots, self._plain_speeds = slots, speeds
        self.begin(range(0))

    def begin(self, updates: range) -> None:
        """See Policy."""
        self._next, self._stop = updates.start, updates.stop
        self._open: dict[int, tuple[int, float]] = {}
        """Who is at each update under way, by its id, and since when."""

    def draw(self, task: int, live: frozenset[int], now: float) -> Grant | None:
        """See Policy."""
        if self.exhausted() or not self._may_start(self._next):
            return None
        remaining = (self._stop - self._next) * self._slots
        busy = sum(self._plain_speeds.left(other, self._slots, now - since) for other, since in self._open.values())
        if self._open and not self._plain_speeds.worth_while(task, self._slots, remaining, busy, live):
            return None
        grant = Grant(self._next, 0, self._slots)
        self._open[grant.update] = task, now
        self._next += 1
        return grant

    def _may_start(self, update: int) -> bool:
        del update
        return True

    def replied(self, grant: Grant, task: int, seconds: float) -> bool:
        """See Policy."""
        self._plain_speeds.observe(task, grant.slots, seconds)
        self._open.pop(grant.update, None)
        return True

    def exhausted(self) -> bool:
        """See Policy."""
        return self._next >= self._stop
