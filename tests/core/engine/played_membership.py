"""A membership at time 0."""

from core.engine.membership import Membership, TimeLimits
from core.engine.workers import Answered, Joined

TIMING = TimeLimits(
    first_reply_seconds=10.0, floor_seconds=2.0, slow_factor=3.0, abandon_seconds=5.0
)


def membership(workers: int, *joined: int) -> Membership:
    """Workers of which these have joined at time 0."""
    made = Membership(range(workers), TIMING)
    for task in joined:
        made.handle(Answered(task), 0.0)
        made.handle(Joined(task), 0.0)
    return made
