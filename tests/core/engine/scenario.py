"""One cluster story each, told in a process of its own.

`python -m tests.core.engine.scenario NAME` prints JSON.

The update is a gradient of -1 under plain SGD with rate 1, so that the final parameters *are* the
number of updates that were applied to each shard.
"""

import json
import os
import sys
import threading
from dataclasses import replace
from typing import Any
from unittest import mock

import psutil

from core.engine.runtime import Runtime, device
from core.engine.workers import Outcome
from core.ground.lazy import tf
from core.server.sockets import cut
from tests.core.engine.processes import Roles
from tests.core.engine.server_stories import (
    PHASES,
    mixed_servers,
    server_stopped_at_the_end,
    server_stopped_for_a_moment,
    server_stopped_while_connecting,
    stopped,
)
from tests.core.engine.story import Story, Tell

JOB_BYTES = 160 << 20
STOPPED = range(1, 10, 2)
LEARNT_REPLIES = 10


def absent_at_connect(roles: Roles) -> dict[str, Any]:
    """Worker 2 is configured and never there; then it comes, in the middle of the second run."""
    story = Story(roles, absent=("worker:2",))
    joined = story.join(3, 2.0)
    story.run("first", 200)
    roles.start("worker:2")
    story.run("second", 100)
    story.join(3)
    story.run("third", 300)
    return story.end(joined=joined)


def stopped_while_tracing(roles: Roles) -> dict[str, Any]:
    """Worker 1 is stopped before the functions are traced and goes on after the first run."""
    story = Story(roles, stopped_while_tracing=("worker:1",))
    joined = story.join(3, 4.0)
    story.run("first", 200)
    roles.go_on("worker:1")
    story.join(3)
    story.run("second", 300)
    return story.end(joined=joined)


def stopped_while_joining(roles: Roles) -> dict[str, Any]:
    """Worker 1 answers a probe, and is stopped before the runtime has taken it in."""
    story = Story(roles, absent=("worker:1",))
    story.run("begin", 50)
    roles.start("worker:1")
    update = story.runtime.update
    tries: list[frozenset[int]] = []

    def stop_and_update(workers: frozenset[int]) -> None:
        if 1 in workers and not tries:
            tries.append(workers)
            roles.stop("worker:1")
        update(workers)

    with mock.patch.object(story.runtime, "update", stop_and_update):
        while not tries:
            story.join(3, 1.0)
        story.run("first", 200)
    roles.go_on("worker:1")
    story.join(3)
    story.run("second", 200)
    return story.end()


def server_asked(roles: Roles) -> dict[str, Any]:
    """Which functions are sent to all where a parameter server is asked for a sign of life."""
    from tensorflow.python.eager import context

    story = Story(roles)
    known = set(context.context().list_function_names())
    story.runtime.ask_server(0)
    sent = sorted(set(context.context().list_function_names()) - known)
    story.close()
    return {"sent": sent}


def path_cut(roles: Roles) -> dict[str, Any]:
    """Worker 0 cannot reach the parameter server for a long while, and worker 1 can."""
    story = Story(roles, spin=2_000)
    left = story.dispatcher.membership.workers[0]
    mended = threading.Event()
    shut: list[int] = []

    def keep_cutting() -> None:
        while not mended.wait(0.01):
            shut.append(cut(roles.running["worker:0"].pid, {("127.0.0.1", roles.ports["ps:0"])}))

    cutting = threading.Thread(target=keep_cutting, daemon=True)
    story.run("first", 200, until=lambda: left.departures >= 5, at={50: cutting.start})
    mended.set()
    cutting.join()
    back: list[int] = []
    story.run("second", 100, lambda outcome: back.append(outcome.task), until=lambda: 0 in back)
    return story.end(shut=sum(shut))


def half_stopped(roles: Roles) -> dict[str, Any]:
    """Every other worker is stopped at the same time; the others go on, and it returns."""
    story = Story(roles, spin=500)
    workers = story.dispatcher.membership.workers.values()
    names = [f"worker:{task}" for task in STOPPED]
    stopped_at: list[int] = []

    def hook(_: Outcome) -> None:
        # Not before each deadline is learnt: a worker that has hardly replied is waited for much
        # longer.
        learnt = all(worker.served >= LEARNT_REPLIES for worker in workers)
        if not stopped_at and story.done >= 200 and learnt:
            stopped_at.append(story.done)
            roles.stop(*names)

    def all_left() -> bool:
        return bool(stopped_at) and not story.dispatcher.live & set(STOPPED)

    with mock.patch.object(story.runtime, "update", wraps=story.runtime.update) as changed:
        story.run("first", 400, hook, until=all_left)
        meanwhile = story.done - stopped_at[0]
        live_meanwhile = sorted(story.dispatcher.live)
        changes = changed.call_count
    roles.go_on(*names)
    joined = story.join(roles.workers)
    story.run("second", 100)
    return story.end(
        meanwhile=meanwhile, live_meanwhile=live_meanwhile, changes=changes, joined=joined
    )


def left(roles: Roles) -> dict[str, Any]:
    """Two jobs after one another on one parameter server.

    What the first held is free for the second.
    """
    roles.start("ps:0")
    server = psutil.Process(roles.running["ps:0"].pid)
    runtime = Runtime(replace(roles.peers, workers=()))
    kept = []
    memory = [server.memory_info().rss]
    for _ in range(2):
        runtime.update(frozenset())
        with tf.device(device("ps", 0)):
            kept.append(tf.Variable(tf.zeros([JOB_BYTES // 4])))
        memory.append(server.memory_info().rss)
        runtime.close()
    return {"memory": memory, "job": JOB_BYTES}


STORIES: dict[str, tuple[Tell, int, int]] = {
    story.__name__: (story, servers, workers)
    for story, servers, workers in [
        (absent_at_connect, 1, 3),
        (stopped_while_tracing, 1, 3),
        (stopped_while_joining, 1, 3),
        (server_asked, 1, 1),
        (mixed_servers, 1, 2),
        (path_cut, 1, 2),
        (half_stopped, 1, 10),
        (left, 1, 1),
        (server_stopped_for_a_moment, 2, 2),
        (server_stopped_while_connecting, 2, 1),
        (server_stopped_at_the_end, 2, 2),
    ]
}
STORIES |= {f"server_{phase}": (stopped(phase), 2, 2) for phase in PHASES}


def main(name: str) -> None:
    print("begun", flush=True)  # TensorFlow is loaded: the rest has a deadline of its own
    tell, servers, workers = STORIES[name]
    roles = Roles(servers, workers)
    try:
        print(json.dumps(tell(roles)), flush=True)
    finally:
        roles.close()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
