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
from core.engine.drive import GrantSource, ItemDrive
from core.engine.membership import Membership, TimeLimits
from core.consistency.synchronous import Synchronous
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
    Probed,
    ProbeSuspect,
    Replied,
)

LOOK_SECONDS = 1.0
"""A stopped worker that goes on replies after at most so long."""

PATIENCE_SECONDS = 2.0
"""A worker waits so long for the others' parts of a step."""


class Happening(NamedTuple):
    """At `time` seconds a worker is killed or stopped, answers again, or replies to a call.

    In a call of several steps it has computed one (`part`), or waits for the others (`wait`).

    One that is killed at 0 is absent until it answers.
    """

    time: float
    task: int
    what: str
    attempt: int = 0
    begun: float = 0.0


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
    """A call of several steps on one worker."""

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


def play(
    policy: Policy, updates: range, seconds: Sequence[float], faults: Iterable[Happening] = ()
) -> Seen:
    """One stretch of updates from beginning to end; `seconds` a slot of each worker.

    Fails if nothing is under way and somebody is left with nothing to do.
    """
    now = 0.0
    seen = Seen()
    happenings = sorted(faults)
    states = ["answer" for _ in seconds]
    # A stopped worker is in the cluster for so long that one which waits for it stalls.
    membership = Membership(range(len(seconds)), TimeLimits(abandon_seconds=90.0))
    # Parts of each size are a function, which has its own deadlines, as in the product.
    source = GrantSource(
        policy,
        lambda grant: Item(
            100 * grant.update + grant.first, "several" if grant.several else grant.slots, (grant,)
        ),
        lambda: drive.live,
        lambda: now,
    )
    drive = ItemDrive(membership, source)
    server = Server(getattr(policy, "_slots", 1), updates.start)
    calls: dict[int, Call] = {}

    def later(time: float, task: int, what: str, call: Call) -> None:
        heappush(happenings, Happening(time, task, what, call.attempt, call.begun))

    def contribute(grant: Grant, step: int) -> bool:
        before = server.step
        is_awaited = server.contribute(grant, step)
        if server.step > before:
            for task, call in calls.items():
                later(now, task, "wait", call)
        return is_awaited

    def advance(task: int, what: str) -> None:
        """Go on with a call of several steps; a worker skips what others have finished."""
        call = calls[task]
        if what == "wait" and call.waits_until is None:
            return  # it was woken before
        if what == "part":
            call.done += contribute(call.grant, call.grant.update + call.done)
        call.done = max(call.done, min(server.step - call.grant.update, call.grant.updates))
        if call.done == call.grant.updates:
            handle(Replied(task, call.attempt, call.done, now - call.begun))
            return
        if server.step == call.grant.update + call.done:
            call.waits_until = None
            later(now + seconds[task] * call.grant.slots, task, "part", call)
            return
        call.waits_until = call.waits_until or now + PATIENCE_SECONDS
        if now >= call.waits_until:
            handle(Replied(task, call.attempt, call.done, now - call.begun))
        else:
            later(call.waits_until, task, "wait", call)

    def handle(event: Event) -> None:
        carry_out(membership.handle(event, now))

    def carry_out(instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Add(task):
                    handle(Joined(task))
                case Dispatch(task, item, attempt):
                    (grant,) = item.arguments
                    end = now + seconds[task] * grant.slots
                    if grant.several:
                        calls[task] = Call(grant, attempt, now)
                        advance(task, "begin")
                    else:
                        heappush(happenings, Happening(end, task, "reply", attempt, now))
                case Deliver(outcome):
                    grant = source.granted(outcome)
                    assert seen.complete.get(grant.update, now) == now, "no longer needed"
                    seen.slots[outcome.task] += grant.slots * (outcome.value or 1)
                    own_seconds = outcome.seconds
                    done = []
                    if grant.several:
                        own_seconds = seconds[outcome.task] * grant.slots * outcome.value
                        done = [outcome.value]
                    elif isinstance(policy, Synchronous):
                        contribute(grant, grant.update)
                    for update in policy.replied(grant, outcome.task, own_seconds, *done):
                        seen.complete[update] = now
                case ProbeSuspect(task):
                    handle(Probed(task, states[task] == "answer"))

    policy.begin(updates)
    while True:
        while happenings and happenings[0].time <= now:
            _, task, what, attempt, begun = happening = heappop(happenings)
            if what in ("kill", "stop", "answer"):
                states[task] = what
                if what == "kill":
                    calls.pop(task, None)
            elif states[task] == "stop":
                heappush(happenings, happening._replace(time=now + LOOK_SECONDS))
            elif what != "reply":
                if task in calls and calls[task].attempt == attempt:
                    advance(task, what)
            else:
                handle(Replied(task, attempt, None, now - begun))
        carry_out(membership.tick(now))
        for task, worker in membership.workers.items():
            match states[task]:
                case "kill":
                    handle(Failed(task, worker.attempt or 0, "killed"))
                case "answer":
                    handle(Answered(task))
        drive.forget_withdrawn()
        # Twice: who is asked a second time knows that all who were idle have been asked.
        for instruction in chain(drive.draw(now), drive.draw(now)):
            carry_out([instruction])
            if isinstance(instruction, Dispatch):
                seen.note(instruction, membership)
        if drive.exhausted() and not membership.open_items:
            seen.seconds = now
            return seen
        assert membership.open_items or not membership.idle, "it stalls"
        now = happenings[0].time
