"""A cluster without sockets or clocks: the policy, the membership and the drive of the product.

Only what takes time is played: coordinator, parameter servers, links and workers. Each of the first
three does one thing at a time. Pure.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from math import inf
from random import Random
from typing import NamedTuple

from cluster.forecast.costs import FittedCosts, Line, MeasuredCosts
from core.consistency import MOST_UPDATES, Grant, Policy, Speeds
from core.engine.drive import GrantSource, ItemDrive
from core.engine.membership import Membership
from core.engine.workers import (
    Abandon,
    Add,
    Answered,
    Deliver,
    Dispatch,
    Drop,
    Event,
    Failed,
    Fence,
    Instruction,
    Item,
    Joined,
    Probed,
    ProbeSuspect,
    Replied,
)
from core.ground.errors import UsageError

COORDINATOR = "coordinator"
SERVER = "server"
LINK = "link"
WORKER = "workers"
WAITING = "stragglers"

ROUND_TRIPS = 4
"""Round trips of an update: the call begins and replies, which several may share; the worker takes
its turn, pulls and pushes."""

LATE_SECONDS = 0.5
"""The dispatcher draws this often when nothing happens: a late part may go to another worker."""
LATE_SHARE = 0.1
"""It does after this share of a longer time until something happens, so that work is bounded."""

MOST_LOST = 3
"""Calls of each worker that may be given up before one ends."""


STEP_TRIPS = 5
"""Round trips of a step in a call of several: whether the step before is whole, its end in two, a
part to all servers but the first, and to the first."""


class Links(NamedTuple):
    """The link of each node: bytes a second, and seconds there and back."""

    bytes_a_second: float
    round_trip_seconds: float


class Stage(NamedTuple):
    """A piece of a call: what it is counted as, its seconds, and what is busy meanwhile, if any.

    It begins once all slots of the step `whole` are there.
    """

    kind: str
    seconds: float
    shared: str = ""
    whole: int = -1


class Simulation:
    """Some updates of one training on so many workers, all of them there from the beginning.

    `complete` has the times at which updates were complete, `spent` the workers' seconds by what
    they were spent on; one with nothing to do waits.
    """

    def __init__(self, costs: MeasuredCosts, fit: FittedCosts, links: Links, workers: int) -> None:
        self._costs = costs
        self._fit = fit
        self._links = links
        self._workers = workers
        self._random = Random(0)
        self._policy: Policy = costs.facts.policy(costs.mode_options, costs.slots, Speeds())
        self._policy.most_updates = MOST_UPDATES if costs.several else 0
        # Where the workers hold the parameters one call spans all of them.
        members = 1 if costs.facts.parameters == "workers" else workers
        self._membership = Membership(range(members))
        self._now = 0.0
        self._lost = 0
        self._sequence = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._attempts: dict[int, int] = {}
        self._free: defaultdict[str, float] = defaultdict(float)
        self._here: defaultdict[int, set[int]] = defaultdict(set)
        """Slots by step whose parts have come."""
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        """Steps that calls wait for, and what each continues with."""
        self._own: defaultdict[int, float] = defaultdict(float)
        """Seconds of each worker's present call but for waits and the coordinator's."""
        self._source = GrantSource(
            self._policy, self._item, lambda: self._drive.live, lambda: self._now
        )
        self._drive = ItemDrive(self._membership, self._source)
        self.complete: list[float] = []
        self.spent: defaultdict[str, float] = defaultdict(float)
        for task in range(members):
            self._handle(Answered(task))

    def run(self, updates: int, stretch: int) -> None:
        """Play so many updates, `stretch` at a time: all workers wait at the end of each."""
        for first in range(0, updates, stretch):
            self._policy.begin(range(first, min(updates, first + stretch)))
            self._drain()
        waited = self._now * len(self._membership.workers) - sum(self.spent.values())
        self.spent[WAITING] += waited

    def _drain(self) -> None:
        drive = self._drive
        while True:
            drive.forget_withdrawn()
            for instruction in drive.draw(self._now):
                self._carry_out([instruction])
            if drive.exhausted() and not self._membership.open_items:
                return
            due = min(self._membership.next_due() or inf, self._next_look())
            self._has_changed = False
            while not self._has_changed:
                if not self._events or self._events[0][0] > due:
                    self._now = max(self._now, due)
                    self._carry_out(self._membership.tick(self._now))
                    break
                self._now, _, happen = heapq.heappop(self._events)
                happen()

    def _next_look(self) -> float:
        """Return when a late part may go to another worker, unless something happens before."""
        seconds = LATE_SECONDS
        if self._events:
            seconds = max(seconds, LATE_SHARE * (self._events[0][0] - self._now))
        return self._now + seconds

    def _item(self, grant: Grant) -> Item:
        """One grant has one id, so that a part which is repeated counts once."""
        return Item(grant.update * (self._costs.slots + 1) + grant.first, WORKER, (grant,))

    def _at(self, time: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._sequence), happen))

    def _advance(self, task: int, attempt: int, call: Iterator[Stage], begun: float) -> None:
        """Begin the next stage of a call that still counts, or reply."""
        if self._attempts.get(task) != attempt:
            return
        stage = next(call, None)
        if stage is None:
            self._handle(Replied(task, attempt, self._own.pop(task), self._now - begun))
            return
        self._when_whole(stage.whole, partial(self._begin, stage, task, attempt, call, begun))

    def _begin(
        self, stage: Stage, task: int, attempt: int, call: Iterator[Stage], begun: float
    ) -> None:
        begin = self._now
        if stage.shared:
            begin = max(begin, self._free[stage.shared])
            self._free[stage.shared] = begin + stage.seconds
        end = begin + stage.seconds
        self.spent[stage.kind] += end - self._now
        if stage.kind != COORDINATOR:
            self._own[task] += end - self._now
        self._at(end, partial(self._advance, task, attempt, call, begun))

    def _when_whole(self, step: int, resume: Callable[[], None]) -> None:
        if step in self._here and len(self._here[step]) < self._costs.slots:
            self._waiting.append((step, resume))
        else:
            resume()

    def _contribute(self, grant: Grant, step: int) -> None:
        """Note a part of a step; calls that waited for all of them continue."""
        self._here[step].update(range(grant.first, grant.first + grant.slots))
        waiting = self._waiting
        self._waiting = []
        for awaited, resume in waiting:
            self._when_whole(awaited, resume)

    def _handle(self, event: Event) -> None:
        self._has_changed = True
        self._carry_out(self._membership.handle(event, self._now))

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Add(task):
                    self._handle(Joined(task))
                case Dispatch(task, item, attempt):
                    self._attempts[task] = attempt
                    self._own[task] = 0.0
                    self._advance(task, attempt, self._call(item.arguments[0]), self._now)
                case Deliver(outcome):
                    self._lost = 0
                    grant = self._source.granted(outcome)
                    seconds = outcome.seconds
                    if self._costs.several and self._costs.in_parts:
                        seconds = outcome.value
                    own_seconds = seconds / grant.updates
                    done = self._policy.replied(grant, outcome.task, own_seconds)
                    self.complete += [self._now] * len(done)
                case ProbeSuspect(task):
                    self._at(self._now, partial(self._handle, Probed(task, True)))
                case Fence(task, reason):
                    self._lost += 1
                    if self._lost > MOST_LOST * len(self._membership.workers):
                        raise UsageError(
                            "the training does not end: its calls take minutes, after which a"
                            " worker counts as lost: take a faster --link, a lower --latency or"
                            " smaller batches"
                        )
                    lost = Failed(task, self._attempts[task], reason)
                    self._at(self._now, partial(self._handle, lost))
                case Drop(task) | Abandon(task):
                    self._attempts.pop(task, None)
                    back = self._membership.workers[task].due
                    self._at(back, partial(self._handle, Answered(task)))

    def _call(self, grant: Grant) -> Iterator[Stage]:
        """Yield the stages of one call, in order."""
        fit = self._fit
        costs = self._costs
        seconds = grant.updates * self._cost(fit.coordinator, grant)
        half = Stage(COORDINATOR, seconds / 2, COORDINATOR)
        trip = self._links.round_trip_seconds
        own_trips = Stage(LINK, (ROUND_TRIPS - 1) * trip)
        if costs.several and costs.in_parts:
            own_trips = Stage(LINK, STEP_TRIPS * trip)
        yield half
        yield Stage(LINK, trip / 2)
        if costs.facts.parameters == "workers":
            workers = self._workers
            yield own_trips
            yield Stage(WORKER, max(self._compute(1 / workers) for _ in range(workers)))
            size = (fit.pull_bytes + fit.push_bytes) * (workers - 1) / workers
            yield Stage(LINK, size / self._links.bytes_a_second)
        else:
            for update in grant.numbers:
                yield own_trips
                yield from self._update(grant, update)
        yield Stage(LINK, trip / 2)
        yield half

    def _update(self, grant: Grant, update: int) -> Iterator[Stage]:
        """Yield the stages of one update of a call on worker, links and servers."""
        fit = self._fit
        costs = self._costs
        server = Stage(SERVER, self._cost(fit.server, grant) / costs.servers / 2, SERVER)
        yield server._replace(whole=update - 1 if update > grant.update else -1)
        yield from self._transfer("pulls", fit.pull_bytes)
        yield Stage(WORKER, self._compute(costs.waves(grant.slots) / costs.waves(costs.slots)))
        yield from self._transfer("pushes", fit.push_bytes)
        yield server
        if costs.in_parts:
            self._contribute(grant, update)

    def _cost(self, line: Line, grant: Grant) -> float:
        """Return the seconds of one call; an update's first part bears what is once an update."""
        if not self._costs.in_parts:
            return line.at(self._workers)
        if grant.first:
            return line.slope
        return line.at(1)

    def _compute(self, share: float) -> float:
        """Return the seconds of a part of an update: log-normal with the measured deviation."""
        spread = self._costs.alone.spread
        noise = self._random.lognormvariate(-spread * spread / 2, spread)
        return (self._fit.call + self._fit.compute * share) * noise

    def _transfer(self, way: str, size: float) -> Iterator[Stage]:
        """Yield a call's way through each server's link, then what the worker's own adds."""
        seconds = size / self._links.bytes_a_second
        yield Stage(LINK, seconds / self._costs.servers, way)
        yield Stage(LINK, seconds - seconds / self._costs.servers)
