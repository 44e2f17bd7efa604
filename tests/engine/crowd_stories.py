"""Stories of `tests.engine.scenario` in which many workers stop at once, and of a worker that is no longer there."""

import queue
import signal
from typing import Any

import numpy as np

from cluster.engine.lanes import WorkerLane
from cluster.engine.messages import Event, Item, Outcome
from cluster.engine.runtime import trace
from tests.engine.processes import Roles
from tests.engine.story import Story

import tensorflow as tf  # isort: skip

STOPPED = range(1, 10, 2)
LEARNT_REPLIES = 10


def half_stopped(roles: Roles) -> dict[str, Any]:
    """Every other worker is stopped at the same time; the others go on, and it returns."""
    story = Story(roles, spin=500)
    story.dispatcher.wait_for_workers(roles.workers, 90.0)
    definitions: list[int] = []
    update = story.runtime.update

    def counted(workers: frozenset[int]) -> None:
        definitions.append(len(workers))
        update(workers)

    story.runtime.update = counted  # type: ignore[method-assign]

    stopped_at: list[int] = []

    def hook(_: Outcome) -> None:
        # Not before each deadline is learnt: a worker that has hardly replied is waited for much longer.
        workers = story.dispatcher.membership.workers.values()
        if not stopped_at and story.done >= 200 and all(worker.served >= LEARNT_REPLIES for worker in workers):
            stopped_at.append(story.done)
            for task in STOPPED:
                roles.running[f"worker:{task}"].send_signal(signal.SIGSTOP)

    first = story.run(400, hook, until=lambda: bool(stopped_at) and not story.dispatcher.live & set(STOPPED))
    meanwhile = story.done - stopped_at[0]
    live_meanwhile, changes = sorted(story.dispatcher.live), len(definitions)
    for task in STOPPED:
        roles.running[f"worker:{task}"].send_signal(signal.SIGCONT)
    joined = story.dispatcher.wait_for_workers(roles.workers, 60.0)
    second = story.run(100)
    return story.end(
        first=first, second=second, meanwhile=meanwhile, live_meanwhile=live_meanwhile, changes=changes, joined=joined
    )


def lane_of_nobody(roles: Roles) -> dict[str, Any]:
    """A call is made to a worker that has just been taken out of the cluster definition."""
    story = Story(roles)
    story.dispatcher.wait_for_workers(1, 30.0)
    story.runtime.update(frozenset())
    function = trace(lambda x: x + 1, tf.TensorSpec([], tf.int64))
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    lane = WorkerLane(story.runtime, {"add": function}, 0, events)
    lane.call(Item(1, "add", (np.int64(1),)), 1)
    failed = events.get(timeout=30.0)
    lane.close(1.0)
    return story.end(reason=getattr(failed, "reason", None), transient=getattr(failed, "transient", None))
