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


class Happening(NamedTuple):
    """At `time` seconds a worker is killed or stopped, answers again, or replies to a call.

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
        lambda grant: Item(100 * grant.update + grant.first, grant.slots, (grant,)),
        lambda: drive.live,
        lambda: now,
    )
    drive = ItemDrive(membership, source)

    def handle(event: Event) -> None:
        carry_out(membership.handle(event, now))

    def carry_out(instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Add(task):
                    handle(Joined(task))
                case Dispatch(task, item, attempt):
                    end = now + seconds[task] * item.function
                    heappush(happenings, Happening(end, task, "reply", attempt, now))
                case Deliver(outcome):
                    grant = source.granted(outcome)
                    assert seen.complete.get(grant.update, now) == now, "no longer needed"
                    seen.slots[outcome.task] += grant.slots
                    if policy.replied(grant, outcome.task, outcome.seconds):
                        seen.complete[grant.update] = now
                case ProbeSuspect(task):
                    handle(Probed(task, states[task] == "answer"))

    policy.begin(updates)
    while True:
        while happenings and happenings[0].time <= now:
            _, task, what, attempt, begun = happening = heappop(happenings)
            if what != "reply":
                states[task] = what
            elif states[task] == "stop":
                heappush(happenings, happening._replace(time=now + LOOK_SECONDS))
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
