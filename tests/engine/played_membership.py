"""A membership at time 0 and what its tests compare with."""

from cluster.engine.membership import Membership, Timing
from cluster.engine.messages import Add, Answered, Deliver, Item, Joined, Outcome

TIMING = Timing(first_reply_seconds=10.0, floor_seconds=2.0, slow_factor=3.0, abandon_seconds=5.0)
UNAVAILABLE = "UnavailableError: Socket closed"


def items(*identifiers: int) -> list[Item]:
    return [Item(identifier, "update") for identifier in identifiers]


def membership(workers: int, *joined: int) -> Membership:
    """Workers of which these have joined at time 0."""
    made = Membership(range(workers), TIMING)
    for task in joined:
        assert made.handle(Answered(task), 0.0) == [Add(task)]
        assert made.handle(Joined(task), 0.0) == []
    return made


def delivered(item: Item, task: int, attempts: int = 1) -> Deliver:
    return Deliver(Outcome(item, task, None, 0.1, attempts))
