"""A cluster without sockets or clocks: the membership and the drive of the product.

Only its workers are played, with given speeds and faults.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain
from typing import NamedTuple

from hypothesis import strategies as st

from core.consistency import Grant, Policy
from core.consistency.synchronous import Synchronous
from core.engine.drive import GrantSource, ItemDrive
from core.engine.membership import Membership, TimeLimits
from core.engine.workers import (
    Add,
    Answered,
    Deliver,
    Dispatch,
    Event,
    Failed,
    Instruction,
    Item,
    Joined,
    Outcome,
    Probed,
    ProbeSuspect,
    Replied,
)

LOOK_SECONDS = 1.0
"""A stopped worker that goes on replies after at most so long."""

PATIENCE_SECONDS = 2.0
"""A worker waits so long for the others' parts of a step."""


class Happening(NamedTuple):
    """At `time` seconds a worker is killed or stopped, answers again, or goes on with a call.

    It has computed a `part` then, or was to `wait` for the others'.

    One that is killed at 0 is absent until it answers.
    """

    time: float
    task: int
    what: str
    attempt: int = 0


def faults(last: int, seconds: float) -> st.SearchStrategy[Happening]:
    """What befalls a worker from 1 to `last` in the first `seconds`, often at the beginning.

    Nothing befalls worker 0, so that somebody is always there.
    """
    time = st.just(0.0) | st.floats(0.0, seconds)
    what = st.sampled_from(["kill", "stop", "answer"])
    drawn = st.tuples(time, st.integers(1, last), what)
    return drawn.map(lambda fault: Happening(*fault))


@dataclass
class Call:
    """A call on one worker: what it does, since when, how many updates it has done."""

    grant: Grant
    attempt: int
    begun: float
    done: int = 0
    waits_until: float | None = None


@dataclass
class Server:
    """The step that the parameter servers wait for, and the parts that came."""

    slots: int
    step: int
    received: set[int] = field(default_factory=set)

    def contribute(self, grant: Grant, step: int) -> bool:
        """Keep a part; whether it was of the step that is waited for."""
        if step != self.step:
            return False
        self.received.update(range(grant.first, grant.first + grant.slots))
        if len(self.received) == self.slots:
            self.received.clear()
            self.step += 1
        return True


@dataclass
class Seen:
    """What happened in a run."""

    seconds: float = 0.0
    complete: dict[int, float] = field(default_factory=dict)
    """Time of each update, in the order in which they were completed."""
    drawn: list[tuple[int, Grant, bool]] = field(default_factory=list)
    """By whom, what, and whether it was under way already."""
    slots: Counter[int] = field(default_factory=Counter)
    """Slots that counted, by worker."""
    most_backups: int = 0
    repeated: list[Item] = field(default_factory=list)

    def note(self, dispatch: Dispatch, membership: Membership) -> None:
        again = membership.attempts(dispatch.item) > 1
        self.drawn.append((dispatch.task, dispatch.item.arguments[0], again))
        self.repeated += [dispatch.item] * again
        backups = sum(membership.attempts(item) > 0 for item in self.repeated)
        self.most_backups = max(self.most_backups, backups)


class Play:
    """A stretch of updates under one policy, event by event."""

    def __init__(
        self, policy: Policy, seconds: Sequence[float], faults: Iterable[Happening], first: int
    ) -> None:
        self.now = 0.0
        self.seen = Seen()
        self._policy = policy
        self._seconds = seconds
        self._happenings = sorted(faults)
        self._states = ["answer" for _ in seconds]
        # A stopped worker is in the cluster for so long that one which waits for it stalls.
        self.membership = Membership(range(len(seconds)), TimeLimits(abandon_seconds=90.0))
        # Parts of each size are a function, which has its own deadlines, as in the product.
        self._source = GrantSource(
            policy,
            lambda grant: Item(100 * grant.update + grant.first, grant.slots, (grant,)),
            lambda: self.drive.live,
            lambda: self.now,
        )
        self.drive = ItemDrive(self.membership, self._source)
        self._calls: dict[int, Call] = {}
        self._server: Server | None = None
        """In a policy whose calls do several steps."""
        if isinstance(policy, Synchronous) and policy.most_updates:
            self._server = Server(policy.slots, first)

    def handle(self, event: Event) -> None:
        self.carry_out(self.membership.handle(event, self.now))

    def carry_out(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Add(task):
                    self.handle(Joined(task))
                case Dispatch(task, item, attempt):
                    (grant,) = item.arguments
                    self._calls[task] = Call(grant, attempt, self.now)
                    self._advance(task, "begin")
                case Deliver(outcome):
                    self._deliver(outcome)
                case ProbeSuspect(task):
                    self.handle(Probed(task, self._states[task] == "answer"))

    def _deliver(self, outcome: Outcome) -> None:
        grant = self._source.granted(outcome)
        assert self.seen.complete.get(grant.update, self.now) == self.now, "no longer needed"
        done = outcome.value
        self.seen.slots[outcome.task] += grant.slots * done
        own_seconds = outcome.seconds / grant.updates
        if self._server:
            own_seconds = self._seconds[outcome.task] * grant.slots
        for update in self._policy.replied(grant, outcome.task, own_seconds, done):
            self.seen.complete[update] = self.now

    def _later(self, time: float, task: int, what: str) -> None:
        heappush(self._happenings, Happening(time, task, what, self._calls[task].attempt))

    def _reply(self, task: int) -> None:
        call = self._calls.pop(task)
        self.handle(Replied(task, call.attempt, call.done, self.now - call.begun))

    def _advance(self, task: int, what: str) -> None:
        """Go on with a call: its part of a step begins, is computed, or waits for the others'."""
        call = self._calls[task]
        grant = call.grant
        if what == "wait" and call.waits_until is None:
            return  # it was woken before
        if self._server is None:
            call.done = grant.updates * (what == "part")
            ready = not call.done
        else:
            before = self._server.step
            if what == "part":
                call.done += self._server.contribute(grant, grant.update + call.done)
            reached = min(self._server.step - grant.update, grant.updates)
            call.done = max(call.done, reached)  # others have finished what it skips
            ready = self._server.step == grant.update + call.done
            if self._server.step > before:
                for other in self._calls:
                    self._later(self.now, other, "wait")
        if call.done == grant.updates:
            self._reply(task)
        elif ready:
            call.waits_until = None
            self._later(self.now + self._seconds[task] * grant.slots, task, "part")
        elif call.waits_until is None:
            call.waits_until = self.now + PATIENCE_SECONDS
            self._later(call.waits_until, task, "wait")
        elif self.now >= call.waits_until:
            self._reply(task)

    def happen(self) -> None:
        """Go on to the next event, and carry out all of that time."""
        self.now = max(self.now, self._happenings[0].time)
        while self._happenings and self._happenings[0].time <= self.now:
            _, task, what, attempt = happening = heappop(self._happenings)
            if what in ("kill", "stop", "answer"):
                self._states[task] = what
            elif self._states[task] == "stop":
                heappush(self._happenings, happening._replace(time=self.now + LOOK_SECONDS))
            elif task in self._calls and self._calls[task].attempt == attempt:
                self._advance(task, what)

    def look(self) -> None:
        """Carry out what the time brings, and have idle workers draw."""
        self.carry_out(self.membership.tick(self.now))
        for task, worker in self.membership.workers.items():
            match self._states[task]:
                case "kill":
                    self._calls.pop(task, None)
                    self.handle(Failed(task, worker.attempt or 0, "killed"))
                case "answer":
                    self.handle(Answered(task))
        self.drive.forget_withdrawn()
        # Twice: who is asked a second time knows that all who were idle have been asked.
        for instruction in chain(self.drive.draw(self.now), self.drive.draw(self.now)):
            self.carry_out([instruction])
            if isinstance(instruction, Dispatch):
                self.seen.note(instruction, self.membership)


def play(
    policy: Policy, updates: range, seconds: Sequence[float], faults: Iterable[Happening] = ()
) -> Seen:
    """One stretch of updates from beginning to end; `seconds` a slot of each worker.

    Fails if nothing is under way and somebody is left with nothing to do.
    """
    play = Play(policy, seconds, faults, updates.start)
    policy.begin(updates)
    play.look()
    while not play.drive.exhausted() or play.membership.open_items:
        assert play.membership.open_items or not play.membership.idle, "it stalls"
        play.happen()
        play.look()
    play.seen.seconds = play.now
    return play.seen
