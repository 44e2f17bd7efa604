"""Which workers are in the cluster and what each works on.

All is decided without sockets, clocks or TensorFlow.

`Membership.handle(event, now)` and `Membership.tick(now)` return instructions; the dispatcher
carries them out. The phases of a worker (`workers.LEGAL_CHANGES` holds every legal change and
its cause):

    absent ─answered─► joining ─joined─► idle ─dispatch─► busy ─replied─► idle
      ▲                                                    │ overdue: probe it,
      │                                                    ▼ the others get its item
      │                                                 suspect ─alive─► slow ─late reply─► idle
      │                                                    │ silent        │ overdue again
      └─────────────── failed or abandoned ◄──────────── fenced ◄──────────┘

A drain takes an idle worker out as soon as another worker can take its work:

    idle ─drain asked, not the last─► drained ─silent, or its process did not end in time─► absent
"""

from collections import deque
from dataclasses import dataclass

from core.engine.workers import (
    OUTSIDE,
    TIMED,
    Abandon,
    AdaptiveDeadline,
    Add,
    Answered,
    Cause,
    Deliver,
    Dispatch,
    DrainAsked,
    Drop,
    Event,
    Failed,
    Fence,
    GiveUp,
    Instruction,
    Item,
    Joined,
    JoinFailed,
    Outcome,
    Phase,
    Probation,
    Probed,
    ProbeSuspect,
    ReleaseWorker,
    Replied,
    Silent,
    Worker,
)
from core.ground.waiting import Backoff

__all__ = ["Membership", "Phase", "TimeLimits", "Worker"]

MAXIMUM_OWN_ERRORS = 3
"""Errors of one item that are not the network's before the run ends."""

MAXIMUM_FAILURES_PER_WORKER = 3
"""Failures of one item before the run ends: this times the number of workers, plus one.

An item that exhausts the memory of every worker looks like a failing network. Without a bound it
would never end.
"""


@dataclass
class TimeLimits:
    """The knobs of patience, in seconds.

    A slow worker gets `slow_factor` deadlines before it is fenced.

    `first_reply_seconds` holds for the first replies to each function after a worker joined: its
    graph is instantiated there then.
    """

    first_reply_seconds: float = 60.0
    floor_seconds: float = 5.0
    slow_factor: float = 4.0
    probe_seconds: float = 10.0
    abandon_seconds: float = 20.0
    longest_cooldown_seconds: float = 30.0
    """The longest pause before a worker that keeps failing is probed again."""
    drained_seconds: float = 120.0
    """A drained worker whose process has not ended by then may join again."""


@dataclass
class _OpenItem:
    """An item without an outcome: how often it was dispatched, failed, and failed by our error."""

    item: Item
    attempts: int = 0
    failures: int = 0
    own_errors: int = 0


class Membership:
    """The pure core of the dispatcher."""

    def __init__(self, tasks: range | list[int], timing: TimeLimits | None = None) -> None:
        self.timing = timing or TimeLimits()
        ceiling = self.timing.longest_cooldown_seconds
        self.workers = {
            task: Worker(task, probation=Probation(Backoff(longest_seconds=ceiling)))
            for task in tasks
        }
        self._pending: deque[Item] = deque()
        self._open: dict[int, _OpenItem] = {}
        """Items by id that are pending or on a worker."""
        self._live: frozenset[int] = frozenset()
        self._next_attempt = 0
        self._definition = 0
        self.late_replies = 0

    def _deadline(self, worker: Worker, item: Item) -> AdaptiveDeadline:
        fresh = AdaptiveDeadline(self.timing.first_reply_seconds, self.timing.floor_seconds)
        return worker.deadlines.setdefault(str(item.function), fresh)

    @property
    def live(self) -> frozenset[int]:
        """Tasks that the cluster definition must contain: the same object until they change."""
        live = frozenset(w.task for w in self.workers.values() if w.phase not in OUTSIDE)
        self._live = self._live if live == self._live else live
        return self._live

    @property
    def idle(self) -> list[int]:
        """Tasks of the workers that can take an item."""
        return [worker.task for worker in self.workers.values() if worker.phase is Phase.IDLE]

    @property
    def open_items(self) -> int:
        """Number of items without an outcome."""
        return len(self._open)

    @property
    def queued(self) -> int:
        """Number of items that wait for a worker."""
        return len(self._pending)

    def attempts(self, item: Item) -> int:
        """Return how often this open item was dispatched."""
        if item.id in self._open:
            return self._open[item.id].attempts
        return 0

    def absent(self, now: float) -> list[int]:
        """Tasks to probe: absent, and past the cooldown after a failure."""
        return [w.task for w in self.workers.values() if w.phase is Phase.ABSENT and w.due <= now]

    @property
    def drained(self) -> list[int]:
        """Tasks of the workers that stay out until their process has ended."""
        return [worker.task for worker in self.workers.values() if worker.phase is Phase.DRAINED]

    def replaceable(self, task: int) -> bool:
        """Whether another worker can take this one's work."""
        return any(
            w.task != task and w.phase in (Phase.IDLE, Phase.BUSY) for w in self.workers.values()
        )

    def next_due(self) -> float | None:
        """Return the earliest time at which `tick` has something to do, or None."""
        return min((w.due for w in self.workers.values() if w.phase in TIMED), default=None)

    def excuse(self, seconds: float) -> None:
        """Move every deadline by the time the coordinator itself stood still."""
        for worker in self.workers.values():
            if worker.phase in TIMED:
                worker.due += seconds

    def redefined(self) -> None:
        """Note a new cluster definition: later calls instantiate their graphs again."""
        self._definition += 1

    def withdraw(self) -> None:
        """Drop every open item. Calls under way continue; their replies are ignored."""
        self._pending.clear()
        self._open.clear()

    def schedule(self, items: list[Item], now: float) -> list[Instruction]:
        """Queue items behind those that wait."""
        for item in items:
            self._open[item.id] = _OpenItem(item)
            self._pending.append(item)
        return self._assign(now)

    def give(self, task: int, item: Item, now: float) -> list[Instruction]:
        """Dispatch the item, new or already on another worker, to the idle worker `task`."""
        open_item = self._open.setdefault(item.id, _OpenItem(item))
        return [self._dispatch(self.workers[task], open_item.item, now)]

    def forget(self, identifier: int) -> None:
        """Drop this item. A worker that has it continues; its reply is ignored."""
        if self._open.pop(identifier, None) is not None:
            self._pending = deque(item for item in self._pending if item.id != identifier)

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """The instructions that follow from one event.

        Raises IllegalPhaseChange for one that cannot come now.
        """
        worker = self.workers[event.task]
        match event:
            case Answered():
                if worker.phase is Phase.ABSENT:
                    worker.change(Phase.JOINING, Cause.ANSWERED)
                    return [Add(worker.task)]
                return []
            case Joined():
                worker.change(Phase.IDLE, Cause.JOINED)
                worker.deadlines.clear()
                worker.served = 0
                worker.joined = now
                return self._assign(now)
            case JoinFailed():
                self._leave(worker, Cause.JOIN_FAILED, now)
                # Without a new definition the runtime may still wait for a worker that joined
                # halfway.
                return [Drop(worker.task, event.reason)]
            case Probed():
                return self._probed(worker, event.alive, now)
            case Replied():
                return self._replied(worker, event, now)
            case Failed():
                return self._failed(worker, event, now)
            case DrainAsked():
                if worker.phase in (Phase.ABSENT, Phase.DRAINED):
                    # Else it may join and work when its process ends.
                    return [self._release(worker, now)]
                worker.draining = True
                return self._assign(now)
            case Silent():
                if worker.phase is Phase.DRAINED:
                    self._take_back(worker, Cause.SILENT, now)
                return []

    def tick(self, now: float) -> list[Instruction]:
        """The instructions that follow from the time."""
        instructions: list[Instruction] = []
        deserted = not self.live
        for worker in self.workers.values():
            if worker.phase is Phase.DRAINED and (deserted or worker.due <= now):
                self._take_back(worker, Cause.OVERDUE, now)  # if it still answers, it can work
            if worker.due > now:
                continue
            match worker.phase:
                case Phase.BUSY:
                    worker.change(Phase.SUSPECT, Cause.OVERDUE)
                    worker.due = now + self.timing.probe_seconds
                    self._put_back(worker.item)
                    instructions.append(ProbeSuspect(worker.task))
                case Phase.SUSPECT:
                    reason = "no reply, and no probe result in time"
                    instructions.append(self._fence(worker, Cause.OVERDUE, reason, now))
                case Phase.SLOW:
                    instructions.append(
                        self._fence(worker, Cause.OVERDUE, "alive, but still without a reply", now)
                    )
                case Phase.FENCED:
                    self._leave(worker, Cause.OVERDUE, now)
                    instructions += [
                        Abandon(worker.task),
                        Drop(worker.task, "its call never came back"),
                    ]
        return instructions + self._assign(now)

    def _probed(self, worker: Worker, alive: bool, now: float) -> list[Instruction]:
        if worker.phase is not Phase.SUSPECT or worker.item is None:
            return []
        if not alive:
            reason = "no reply, and its server does not answer a probe"
            return [self._fence(worker, Cause.SILENT, reason, now)]
        worker.change(Phase.SLOW, Cause.ALIVE)
        deadline = self._deadline(worker, worker.item)
        worker.due = now + self.timing.slow_factor * deadline.seconds()
        if deadline.definition != self._definition:
            worker.due = max(worker.due, now + self.timing.first_reply_seconds)
        return []

    def _fence(self, worker: Worker, cause: Cause, reason: str, now: float) -> Fence:
        worker.change(Phase.FENCED, cause)
        worker.due = now + self.timing.abandon_seconds
        return Fence(worker.task, reason)

    def _replied(self, worker: Worker, event: Replied, now: float) -> list[Instruction]:
        if worker.attempt != event.attempt or worker.item is None:
            self.late_replies += 1
            return []
        item = worker.item
        fenced = worker.phase is Phase.FENCED
        if worker.phase is not Phase.BUSY:
            self.late_replies += 1
        worker.item = worker.attempt = None
        self._deadline(worker, item).observe(event.seconds, worker.definition)
        worker.served += 1
        instructions: list[Instruction] = []
        if fenced:
            # The fence shuts our sockets to it, so it must join again.
            self._leave(worker, Cause.REPLIED, now)
            instructions.append(Drop(worker.task, "fenced; its reply came late"))
        else:
            worker.change(Phase.IDLE, Cause.REPLIED)
            worker.probation.replied(worker.served, now - worker.joined)
        if self._is_open(item):
            attempts = self.attempts(item)
            self.forget(item.id)
            instructions.append(
                Deliver(Outcome(item, worker.task, event.value, event.seconds, attempts))
            )
        return instructions + self._assign(now)

    def _failed(self, worker: Worker, event: Failed, now: float) -> list[Instruction]:
        if worker.attempt != event.attempt or worker.item is None:
            return []
        item = worker.item
        worker.item = worker.attempt = None
        self._put_back(item)
        self._leave(worker, Cause.FAILED, now)
        reason = event.reason
        if event.lacks_file:
            # No later attempt there could succeed, and each would cost the others a change.
            worker.due = float("inf")
            reason += (
                f"; worker:{worker.task} is left out of this job: `fab deploy start` brings what"
                " its node lacks, and `fab deploy check` says what hinders it"
            )
        instructions: list[Instruction] = [Drop(worker.task, reason)]
        if self._is_open(item) and self._hopeless(item, event):
            return [*instructions, GiveUp(item, reason)]
        return instructions + self._assign(now)

    def _hopeless(self, item: Item, event: Failed) -> bool:
        if event.lacks_file:
            return all(worker.due == float("inf") for worker in self.workers.values())
        open_item = self._open[item.id]
        open_item.failures += 1
        open_item.own_errors += not event.transient
        bound = MAXIMUM_FAILURES_PER_WORKER * len(self.workers) + 1
        return open_item.own_errors >= MAXIMUM_OWN_ERRORS or open_item.failures >= bound

    def _leave(self, worker: Worker, cause: Cause, now: float) -> None:
        worker.item = worker.attempt = None
        worker.draining = False
        worker.departures += worker.phase is not Phase.JOINING
        worker.change(Phase.ABSENT, cause)
        worker.due = now + worker.probation.failed()

    @staticmethod
    def _take_back(worker: Worker, cause: Cause, now: float) -> None:
        worker.change(Phase.ABSENT, cause)
        worker.due = now

    def _is_open(self, item: Item) -> bool:
        """Compares by identity: an item of an earlier run may have the id of one in this run."""
        open_item = self._open.get(item.id)
        return open_item is not None and open_item.item is item

    def _put_back(self, item: Item | None) -> None:
        """Queue the item first, because its update is the stalest.

        Not if another worker already has it.
        """
        if item is None or not self._is_open(item) or not item.repeatable:
            return
        is_computed = any(w.item is item and w.phase is Phase.BUSY for w in self.workers.values())
        if not is_computed and all(item is not waiting for waiting in self._pending):
            self._pending.appendleft(item)

    def _release(self, worker: Worker, now: float) -> ReleaseWorker:
        worker.draining = False
        worker.change(Phase.DRAINED, Cause.DRAIN_ASKED)
        worker.due = now + self.timing.drained_seconds
        return ReleaseWorker(worker.task)

    def _assign(self, now: float) -> list[Instruction]:
        # One at a time: the last worker that works is not released.
        instructions: list[Instruction] = [
            self._release(worker, now)
            for worker in self.workers.values()
            if worker.draining and worker.phase is Phase.IDLE and self.replaceable(worker.task)
        ]
        if self._pending:
            for worker in self.workers.values():
                if worker.phase is Phase.IDLE and self._pending:
                    instructions.append(self._dispatch(worker, self._pending.popleft(), now))
        return instructions

    def _dispatch(self, worker: Worker, item: Item, now: float) -> Dispatch:
        self._next_attempt += 1
        self._open[item.id].attempts += 1
        worker.change(Phase.BUSY, Cause.DISPATCHED)
        worker.item = item
        worker.attempt = self._next_attempt
        worker.definition = self._definition
        worker.due = now + self._deadline(worker, item).seconds()
        return Dispatch(worker.task, item, self._next_attempt)
