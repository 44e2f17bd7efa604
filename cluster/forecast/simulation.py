"""A cluster without sockets or clocks: the policy, the membership and the drive of the product.

Only what takes time is played: coordinator, parameter servers, links and workers. Each of the first
three does one thing at a time. Pure.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random

from cluster.forecast.costs import FittedCosts, Line, MeasuredCosts
from core.consistency import Grant, Policy, Speeds
from core.engine.drive import Drive, GrantSource
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
from core.ground.errors import ClusterError

COORDINATOR = "coordinator"
SERVER = "server"
LINK = "link"
WORKER = "worker"
WAITING = "stragglers"

ROUND_TRIPS = 4
"""Of a call: it begins and replies; the worker takes its turn, pulls and pushes."""

LOOK_SECONDS = 0.5
"""The dispatcher draws this often when nothing happens: a late part may go to another worker."""

Stage = tuple[str, str, float]
"""What takes the time, what is busy meanwhile (empty: nothing shared), and for how long."""


@dataclass(frozen=True)
class Network:
    """Links of the nodes: bytes a second, and seconds there and back."""

    bytes_a_second: float
    round_trip_seconds: float


def _amounts() -> defaultdict[str, float]:
    return defaultdict(float)


@dataclass
class Played:
    """What happened: the times at which updates were complete, and where time went."""

    complete: list[float] = field(default_factory=list)
    parts: defaultdict[str, float] = field(default_factory=_amounts)
    """Worker-seconds by what they were spent on; a worker that has nothing to do waits."""


class Simulation:
    """Some updates of one training on so many workers."""

    def __init__(
        self, costs: MeasuredCosts, fit: FittedCosts, network: Network, workers: int, seed: int = 0
    ) -> None:
        """Every worker is there from the beginning. Raises ValueError for options of no mode."""
        self._costs = costs
        self._fit = fit
        self._network = network
        self._workers = workers
        self._random = Random(seed)
        self._policy: Policy = costs.facts.policy(costs.mode_options, costs.slots, Speeds())
        members = workers
        if costs.facts.parameters == "workers":
            members = 1  # one call spans all of them
        self._membership = Membership(range(members))
        self._now = 0.0
        self._sequence = count()
        self._events: list[tuple[float, int, int, int, Iterator[Stage] | Event, float]] = []
        self._attempts: dict[int, int] = {}
        self._free: dict[str, float] = {}
        self._source: GrantSource
        self._played = Played()
        for task in self._membership.workers:
            self._handle(Answered(task))

    def run(self, updates: int, stretch: int) -> Played:
        """Play so many updates, `stretch` at a time: all workers wait at the end of each."""
        for first in range(0, updates, stretch):
            self._stretch(range(first, min(updates, first + stretch)))
        self._played.parts[WAITING] += self._now * len(self._membership.workers) - sum(
            self._played.parts.values()
        )
        return self._played

    def _stretch(self, updates: range) -> None:
        self._policy.begin(updates)
        drive: Drive
        self._source = GrantSource(self._policy, self._item, lambda: drive.live, lambda: self._now)
        drive = Drive(self._membership, self._source)
        while True:
            drive.forget_withdrawn()
            for instruction in drive.draw(self._now):
                self._carry_out([instruction])
            if drive.exhausted() and not self._membership.open_items:
                return
            self._turn()

    def _item(self, grant: Grant) -> Item:
        """One grant has one id, so that a part which is repeated counts once."""
        return Item(grant.update * (self._costs.slots + 1) + grant.first, WORKER, (grant,))

    def _turn(self) -> None:
        """Continue with the next event, or to the time at which something is due."""
        due = self._membership.next_due() or float("inf")
        following = self._events[0][0] if self._events else float("inf")
        look = self._now + LOOK_SECONDS
        if min(due, look) < following:
            self._now = max(self._now, min(due, look))
            self._carry_out(self._membership.tick(self._now))
            return
        self._now, _, task, attempt, what, began = heapq.heappop(self._events)
        if not isinstance(what, Iterator):
            self._handle(what)
        elif self._attempts.get(task) == attempt:
            self._advance(task, attempt, what, began)

    def _push(
        self, at: float, task: int, attempt: int, what: Iterator[Stage] | Event, began: float = 0.0
    ) -> None:
        heapq.heappush(self._events, (at, next(self._sequence), task, attempt, what, began))

    def _advance(self, task: int, attempt: int, call: Iterator[Stage], began: float) -> None:
        """Begin the next stage of a call, or reply."""
        stage = next(call, None)
        if stage is None:
            self._handle(Replied(task, attempt, None, self._now - began))
            return
        kind, shared, seconds = stage
        begin = self._now
        if shared:
            begin = max(begin, self._free.get(shared, 0.0))
            self._free[shared] = begin + seconds
        self._played.parts[kind] += begin + seconds - self._now
        self._push(begin + seconds, task, attempt, call, began)

    def _handle(self, event: Event) -> None:
        self._carry_out(self._membership.handle(event, self._now))

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Add(task):
                    self._handle(Joined(task))
                case Dispatch(task, item, attempt):
                    self._attempts[task] = attempt
                    self._push(self._now, task, attempt, self._call(item.arguments[0]), self._now)
                case Deliver(outcome):
                    grant = self._source.granted(outcome)
                    if self._policy.replied(grant, outcome.task, outcome.seconds):
                        self._played.complete.append(self._now)
                case ProbeSuspect(task):
                    self._push(self._now, task, 0, Probed(task, True))
                case Fence(task, reason):
                    self._push(self._now, task, 0, Failed(task, self._attempts[task], reason))
                case Drop(task) | Abandon(task):
                    self._attempts.pop(task, None)
                    self._push(self._membership.workers[task].due, task, 0, Answered(task))
                case _:
                    raise ClusterError(f"the forecast cannot play {instruction}")

    def _call(self, grant: Grant) -> Iterator[Stage]:
        """The stages of one call, in order."""
        fit = self._fit
        costs = self._costs
        network = self._network
        workers = self._workers
        coordinator = self._cost(fit.coordinator, grant) / 2
        server = self._cost(fit.server, grant) / costs.servers / 2
        yield COORDINATOR, COORDINATOR, coordinator
        yield LINK, "", ROUND_TRIPS * network.round_trip_seconds / 2
        if costs.facts.parameters == "workers":
            yield WORKER, "", max(self._compute(1 / workers) for _ in range(workers))
            both = fit.pull_bytes + fit.push_bytes
            yield LINK, "", both * (workers - 1) / workers / network.bytes_a_second
        else:
            share = _waves(grant.slots, costs) / _waves(costs.slots, costs)
            yield SERVER, SERVER, server
            yield from self._transfer("pulls", fit.pull_bytes)
            yield WORKER, "", self._compute(share)
            yield from self._transfer("pushes", fit.push_bytes)
            yield SERVER, SERVER, server
        yield LINK, "", ROUND_TRIPS * network.round_trip_seconds / 2
        yield COORDINATOR, COORDINATOR, coordinator

    def _cost(self, line: Line, grant: Grant) -> float:
        """Seconds of one call: the first part of an update bears what is once an update."""
        if not self._costs.in_parts:
            return line.at(self._workers)
        return line.each + (line.base if grant.first == 0 else 0.0)

    def _compute(self, share: float) -> float:
        """Seconds of a part of an update: log-normal with the measured deviation."""
        spread = self._costs.spread
        noise = self._random.lognormvariate(-spread * spread / 2, spread) if spread else 1.0
        return (self._fit.call + self._fit.compute * share) * noise

    def _transfer(self, way: str, size: float) -> Iterator[Stage]:
        """The bytes of a call, through each server's link, then what the worker's own adds."""
        a_server = size / self._costs.servers / self._network.bytes_a_second
        yield LINK, way, a_server
        yield LINK, "", size / self._network.bytes_a_second - a_server


def _waves(slots: int, costs: MeasuredCosts) -> int:
    """Rounds in which a worker computes so many slots, one a core at the same time."""
    if costs.in_parts:
        return -(-slots // costs.cores)
    return 1
