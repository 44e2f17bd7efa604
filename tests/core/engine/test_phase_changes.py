"""Every legal change of a worker's phase can be caused, every other one is refused."""

from contextlib import suppress

import pytest

from core.engine.membership import Membership
from core.engine.workers import (
    LEGAL_CHANGES,
    Answered,
    Cause,
    DrainAsked,
    Event,
    Failed,
    IllegalPhaseChange,
    Item,
    Joined,
    JoinFailed,
    Phase,
    Probed,
    Replied,
    Silent,
    Worker,
)
from tests.core.engine.played_membership import membership

JOIN = (Cause.ANSWERED, Cause.JOINED)
WORK = (*JOIN, Cause.DISPATCHED)
WAYS: dict[Phase, tuple[Cause, ...]] = {
    Phase.ABSENT: (),
    Phase.JOINING: (Cause.ANSWERED,),
    Phase.IDLE: JOIN,
    Phase.BUSY: WORK,
    Phase.SUSPECT: (*WORK, Cause.OVERDUE),
    Phase.SLOW: (*WORK, Cause.OVERDUE, Cause.ALIVE),
    Phase.FENCED: (*WORK, Cause.OVERDUE, Cause.SILENT),
    Phase.DRAINED: (*JOIN, Cause.DRAIN_ASKED),
}
"""What leads an absent worker into each phase."""


EVENTS: dict[Cause, list[Event]] = {
    Cause.ANSWERED: [Answered(0)],
    Cause.JOINED: [Joined(0)],
    Cause.JOIN_FAILED: [JoinFailed(0, "gone")],
    Cause.ALIVE: [Probed(0, True)],
    Cause.SILENT: [Probed(0, False), Silent(0)],
    Cause.DRAIN_ASKED: [DrainAsked(0)],
}
"""What happens to worker 0, whatever it does."""


class Case:
    """Worker 0 of a membership in some phase at time 1, beside worker 1, which is idle."""

    def __init__(self, phase: Phase) -> None:
        self.core: Membership = membership(2, 1)
        self.now = 1.0
        for cause in WAYS[phase]:
            self.cause(cause)
        assert self.worker.phase is phase

    @property
    def worker(self) -> Worker:
        return self.core.workers[0]

    def cause(self, cause: Cause) -> None:
        """Make happen what `cause` says, whatever the phase."""
        attempt = self.worker.attempt or 0
        match cause:
            case Cause.DISPATCHED:
                self.core.give(0, Item(1, "update"), self.now)
            case Cause.REPLIED:
                self.core.handle(Replied(0, attempt, None, 0.1), self.now)
            case Cause.FAILED:
                self.core.handle(Failed(0, attempt, "gone"), self.now)
            case Cause.OVERDUE:
                self.now = self.worker.due
                self.core.tick(self.now)
            case _:
                for event in EVENTS[cause]:
                    self.core.handle(event, self.now)


@pytest.mark.parametrize("before", Phase)
@pytest.mark.parametrize("cause", Cause)
def test_an_event_makes_the_one_change_that_the_table_has_and_no_other(
    before: Phase, cause: Cause
) -> None:
    afters = [
        after
        for (first, after), causes in LEGAL_CHANGES.items()
        if first is before and cause in causes
    ]
    assert len(afters) <= 1
    case = Case(before)
    with suppress(IllegalPhaseChange):
        case.cause(cause)
    assert [case.worker.phase] == (afters or [before])


def test_a_change_that_the_table_lacks_names_both_phases_and_the_cause() -> None:
    worker = Worker(3, phase=Phase.IDLE)
    words = f"worker:3 cannot go from idle to fenced because {Cause.OVERDUE}: expected one of busy"
    with pytest.raises(IllegalPhaseChange, match=words):
        worker.change(Phase.FENCED, Cause.OVERDUE)
    assert worker.phase is Phase.IDLE
