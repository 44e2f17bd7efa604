"""Who is in the cluster and who works on what, decided without sockets, clocks or TensorFlow.

`Membership.handle(event, now)` and `Membership.tick(now)` return the instructions that follow; the dispatcher carries
them out. The phases of a worker:

    absent ──answered──► joining ──joined──► idle ──dispatch──► busy ──replied──► idle
      ▲                                                          │ overdue: its item goes to the others, probe it
      │                                                          ▼
      │                                                       suspect ──alive──► slow ──late reply──► idle
      │                                                          │ silent          │ overdue again
      └───────────────── failed or abandoned ◄─────────────── fenced ◄─────────────┘

A worker that somebody asked to drain goes from idle to drained, as soon as another one is there to go on:

    idle ──asked before, and not the last──► drained ──silent, or nobody ended it in time──► absent
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from cluster.engine.deadlines import AdaptiveDeadline, Backoff
from cluster.engine.messages import (
    Abandon,
    Add,
    Answered,
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
    Probe,
    Probed,
    Release,
    Replied,
    Silent,
)

MAXIMUM_OWN_ERRORS = 3
"""Attempts that may end in an error which is not the network's before the run is given up."""

MAXIMUM_FAILURES_PER_WORKER = 3
"""Times the number of workers, plus one: failures of one item before it is to blame.

An item that takes every worker's last memory looks like a network that fails: unbounded, it would go round for ever.
"""


class Phase(Enum):
    """Where a worker stands. The value is the label of the worker-state metric."""

    ABSENT = "absent"
    JOINING = "joining"
    IDLE = "idle"
    BUSY = "busy"
    SUSPECT = "suspect"
    SLOW = "slow"
    FENCED = "fenced"
    DRAINED = "drained"


TIMED = (Phase.BUSY, Phase.SUSPECT, Phase.SLOW, Phase.FENCED, Phase.DRAINED)
"""Phases that end by themselves when their time is up."""

OUTSIDE = (Phase.ABSENT, Phase.JOINING, Phase.DRAINED)
"""Phases in which the cluster definition does not contain the worker."""


@dataclass
class Timing:
    """The knobs of patience, in seconds. A slow worker gets `slow_factor` deadlines before it is fenced.

    `first_reply_seconds` holds for the first replies to each function after a worker joined: its graph is instantiated
    there then.
    """

    first_reply_seconds: float = 60.0
    floor_seconds: float = 5.0
    slow_factor: float = 4.0
    probe_seconds: float = 10.0
    abandon_seconds: float = 20.0
    longest_cooldown_seconds: float = 30.0
    """The most a worker that keeps failing is left alone."""
    drained_seconds: float = 120.0
    """A drained worker that nobody has ended by then is taken back."""


@dataclass
class Worker:
    """One worker as the coordinator sees it."""

    task: int
    deadlines: dict[str, AdaptiveDeadline] = field(default_factory=dict)
    """By function: what one of them takes says nothing about another."""
    phase: Phase = Phase.ABSENT
    attempt: int | None = None
    item: Item | None = None
    due: float = 0.0
    """Time at which the present phase runs out; for an absent worker the time from which it may come back."""
    backoff: Backoff = field(default_factory=Backoff)
    departures: int = 0
    """Times it was in the cluster and had to leave."""
    served: int = 0
    """Replies since it joined."""
    joined: float = 0.0
    """Time at which it joined."""
    draining: bool = False
    """Whether it is to be released when it is idle and another one can go on."""


class Membership:
    """The pure core of the dispatcher."""

    def __init__(self, tasks: range | list[int], timing: Timing | None = None) -> None:
        self.timing = timing or Timing()
        ceiling = self.timing.longest_cooldown_seconds
        self.workers = {task: Worker(task, backoff=Backoff(ceiling_seconds=ceiling)) for task in tasks}
        self._pending: deque[Item] = deque()
        self._open: dict[int, Item] = {}
        """Items without an outcome yet, pending or on some worker."""
        self._attempts: dict[int, int] = {}
        self._own_errors: dict[int, int] = {}
        self._failures: dict[int, int] = {}
        self._next_attempt = 0
        self.late_replies = 0

    def _deadline(self, worker: Worker, item: Item) -> AdaptiveDeadline:
        fresh = AdaptiveDeadline(self.timing.first_reply_seconds, self.timing.floor_seconds)
        return worker.deadlines.setdefault(item.function, fresh)

    @property
    def live(self) -> frozenset[int]:
        """Tasks that the cluster definition must contain now."""
        return frozenset(w.task for w in self.workers.values() if w.phase not in OUTSIDE)

    @property
    def idle(self) -> list[int]:
        """Tasks of the workers that could take an item now."""
        return [worker.task for worker in self.workers.values() if worker.phase is Phase.IDLE]

    @property
    def open_items(self) -> int:
        """Items scheduled and not yet delivered."""
        return len(self._open)

    @property
    def queued(self) -> int:
        """Items that wait for a worker."""
        return len(self._pending)

    def attempts(self, item: Item) -> int:
        """How often an item without an outcome has been sent to a worker."""
        return self._attempts.get(item.id, 0)

    def absent(self, now: float) -> list[int]:
        """Tasks worth a probe: absent, and not in the cooldown after a failure."""
        return [w.task for w in self.workers.values() if w.phase is Phase.ABSENT and w.due <= now]

    @property
    def drained(self) -> list[int]:
        """Tasks of the workers that are kept out until they have been ended."""
        return [worker.task for worker in self.workers.values() if worker.phase is Phase.DRAINED]

    def replaceable(self, task: int) -> bool:
        """Whether some other worker works and could go on alone."""
        return any(w.task != task and w.phase in (Phase.IDLE, Phase.BUSY) for w in self.workers.values())

    def next_due(self) -> float | None:
        """The earliest time at which `tick` would have something to do."""
        return min((w.due for w in self.workers.values() if w.phase in TIMED), default=None)

    def excuse(self, seconds: float) -> None:
        """The coordinator itself stood still this long: whatever was due meanwhile is due that much later."""
        for worker in self.workers.values():
            if worker.phase in TIMED:
                worker.due += seconds

    def withdraw(self) -> None:
        """Forget every item without an outcome: nobody waits for it any more. Calls under way go on, unheard."""
        self._pending.clear()
        self._open.clear()
        self._attempts.clear()
        self._own_errors.clear()
        self._failures.clear()

    def schedule(self, items: list[Item], now: float) -> list[Instruction]:
        """Queue items behind those already waiting."""
        for item in items:
            self._open[item.id] = item
            self._attempts[item.id] = 0
            self._pending.append(item)
        return self._assign(now)

    def give(self, task: int, item: Item, now: float) -> list[Instruction]:
        """Have the idle worker `task` do the item: a new one, or one that another worker is at already."""
        known = self._open.setdefault(item.id, item)
        self._attempts.setdefault(item.id, 0)
        return [self._dispatch(self.workers[task], known, now)]

    def forget(self, identifier: int) -> None:
        """Nobody waits for this item any more; a worker that is at it goes on unheard."""
        if self._open.pop(identifier, None) is not None:
            self._pending = deque(item for item in self._pending if item.id != identifier)
            self._attempts.pop(identifier, None)
            self._own_errors.pop(identifier, None)
            self._failures.pop(identifier, None)

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """What follows from one event."""
        worker = self.workers[event.task]
        match event:
            case Answered():
                if worker.phase is Phase.ABSENT:
                    worker.phase = Phase.JOINING
                    return [Add(worker.task)]
                return []
            case Joined():
                worker.phase = Phase.IDLE
                worker.deadlines.clear()
                worker.served, worker.joined = 0, now
                return self._assign(now)
            case JoinFailed():
                self._leave(worker, now)
                # Half joined is not left: without a definition that says so, the runtime may still wait for it.
                return [Drop(worker.task, event.reason)]
            case Probed():
                return self._probed(worker, event.alive, now)
            case Replied():
                return self._replied(worker, event, now)
            case Failed():
                return self._failed(worker, event, now)
            case DrainAsked():
                if worker.phase in (Phase.ABSENT, Phase.DRAINED):
                    return [self._release(worker, now)]  # or it would join, and be at something when it is ended
                worker.draining = True
                return self._assign(now)
            case Silent():
                if worker.phase is Phase.DRAINED:
                    worker.phase, worker.due = Phase.ABSENT, now
                return []

    def tick(self, now: float) -> list[Instruction]:
        """What follows from the time alone."""
        instructions: list[Instruction] = []
        deserted = not self.live
        for worker in self.workers.values():
            if worker.phase is Phase.DRAINED and (deserted or worker.due <= now):
                worker.phase, worker.due = Phase.ABSENT, now  # if it still answers, it is the one who can go on
            if worker.due > now:
                continue
            match worker.phase:
                case Phase.BUSY:
                    worker.phase, worker.due = Phase.SUSPECT, now + self.timing.probe_seconds
                    self._put_back(worker.item)
                    instructions.append(Probe(worker.task))
                case Phase.SUSPECT:
                    instructions.append(self._fence(worker, "no reply, and nobody could probe it in time", now))
                case Phase.SLOW:
                    instructions.append(self._fence(worker, "alive, but still without a reply", now))
                case Phase.FENCED:
                    self._leave(worker, now)
                    instructions += [Abandon(worker.task), Drop(worker.task, "its call never came back")]
                case _:
                    pass
        return instructions + self._assign(now)

    def _probed(self, worker: Worker, alive: bool, now: float) -> list[Instruction]:
        if worker.phase is not Phase.SUSPECT or worker.item is None:
            return []
        if not alive:
            return [self._fence(worker, "no reply, and its server does not answer a probe", now)]
        worker.phase = Phase.SLOW
        worker.due = now + self.timing.slow_factor * self._deadline(worker, worker.item).seconds()
        return []

    def _fence(self, worker: Worker, reason: str, now: float) -> Fence:
        worker.phase, worker.due = Phase.FENCED, now + self.timing.abandon_seconds
        return Fence(worker.task, reason)

    def _replied(self, worker: Worker, event: Replied, now: float) -> list[Instruction]:
        if worker.attempt != event.attempt or worker.item is None:
            self.late_replies += 1
            return []
        item, fenced = worker.item, worker.phase is Phase.FENCED
        if worker.phase is not Phase.BUSY:
            self.late_replies += 1
        worker.item = worker.attempt = None
        self._deadline(worker, item).observe(event.seconds)
        worker.served += 1
        instructions: list[Instruction] = []
        if fenced:
            # Our sockets to it are gone or going: it has to join anew.
            self._leave(worker, now)
            instructions.append(Drop(worker.task, "fenced; its reply came late"))
        else:
            worker.phase = Phase.IDLE
            worker.backoff.replied(worker.served, now - worker.joined)
        if self._is_open(item):
            attempts = self._attempts[item.id]
            self.forget(item.id)
            instructions.append(Deliver(Outcome(item, worker.task, event.value, event.seconds, attempts)))
        return instructions + self._assign(now)

    def _failed(self, worker: Worker, event: Failed, now: float) -> list[Instruction]:
        if worker.attempt != event.attempt or worker.item is None:
            return []
        item = worker.item
        worker.item = worker.attempt = None
        self._put_back(item)
        self._leave(worker, now)
        instructions: list[Instruction] = [Drop(worker.task, event.reason)]
        if self._is_open(item) and self._hopeless(item, event):
            return [*instructions, GiveUp(item, event.reason)]
        return instructions + self._assign(now)

    def _hopeless(self, item: Item, event: Failed) -> bool:
        self._failures[item.id] = self._failures.get(item.id, 0) + 1
        self._own_errors[item.id] = self._own_errors.get(item.id, 0) + (not event.transient)
        bound = MAXIMUM_FAILURES_PER_WORKER * len(self.workers) + 1
        return self._own_errors[item.id] >= MAXIMUM_OWN_ERRORS or self._failures[item.id] >= bound

    def _leave(self, worker: Worker, now: float) -> None:
        worker.item = worker.attempt = None
        worker.draining = False
        worker.departures += worker.phase is not Phase.JOINING
        worker.phase, worker.due = Phase.ABSENT, now + worker.backoff.failed()

    def _is_open(self, item: Item) -> bool:
        """By identity: an item of a run that was broken off may bear the id of one in this run."""
        return self._open.get(item.id) is item

    def _put_back(self, item: Item | None) -> None:
        """To the front: an update that was given up is the stalest there is. Not if another worker is at it already."""
        if item is None or not self._is_open(item) or not item.repeatable:
            return
        taken = any(w.item is item and w.phase is Phase.BUSY for w in self.workers.values())
        if not taken and all(item is not waiting for waiting in self._pending):
            self._pending.appendleft(item)

    def _release(self, worker: Worker, now: float) -> Release:
        worker.draining = False
        worker.phase, worker.due = Phase.DRAINED, now + self.timing.drained_seconds
        return Release(worker.task)

    def _assign(self, now: float) -> list[Instruction]:
        # One after the other: the last one that is left is not released, and goes on.
        instructions: list[Instruction] = [
            self._release(worker, now)
            for worker in self.workers.values()
            if worker.draining and worker.phase is Phase.IDLE and self.replaceable(worker.task)
        ]
        for worker in self.workers.values():
            if worker.phase is not Phase.IDLE or not self._pending:
                continue
            instructions.append(self._dispatch(worker, self._pending.popleft(), now))
        return instructions

    def _dispatch(self, worker: Worker, item: Item, now: float) -> Dispatch:
        self._next_attempt += 1
        self._attempts[item.id] += 1
        worker.phase, worker.item, worker.attempt = Phase.BUSY, item, self._next_attempt
        worker.due = now + self._deadline(worker, item).seconds()
        return Dispatch(worker.task, item, self._next_attempt)
