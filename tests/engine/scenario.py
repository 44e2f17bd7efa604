"""One cluster story each, told in a process of its own: `python -m tests.engine.scenario NAME` prints JSON.

The update is a gradient of -1 under plain SGD with rate 1, so that the final parameters *are* the number of updates
that were applied to each shard.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from unittest import mock

import psutil

import cluster.engine.environment  # noqa: F401  (before tensorflow)
from cluster.engine import runtime as engine_runtime
from cluster.engine.lost import ParameterServerLost
from cluster.engine.membership import Phase
from cluster.engine.messages import Item, Outcome
from cluster.engine.runtime import Peers, Runtime, device, trace
from tests.engine.crowd_stories import half_stopped, lane_of_nobody
from tests.engine.path_stories import path_cut, path_reset
from tests.engine.processes import Roles
from tests.engine.story import Story

import tensorflow as tf  # isort: skip
from tensorflow.python.eager import context
from tensorflow.python.framework import ops

JOB_BYTES = 160 << 20


def absent_at_connect(roles: Roles) -> dict[str, Any]:
    """Worker 2 is configured and never there; then it comes, in the middle of the second run."""
    story = Story(roles, absent=("worker:2",))
    story.dispatcher.wait_for_workers(2, 30.0)
    joined = story.dispatcher.wait_for_workers(3, 2.0)
    first = story.run(200)
    roles.start("worker:2")
    second = story.run(100)
    story.dispatcher.wait_for_workers(3, 30.0)
    third = story.run(300)
    return story.end(joined=joined, first=first, second=second, third=third)


def dead_and_returning(roles: Roles) -> dict[str, Any]:
    """Worker 0 dies for good; worker 1 dies and returns: it must get work although worker 0 stays away."""
    story = Story(roles)
    story.dispatcher.wait_for_workers(3, 30.0)

    def hook(_: Outcome) -> None:
        if story.done == 50:
            roles.kill("worker:0")
        if story.done == 100:
            roles.kill("worker:1")
        if story.done == 150:
            roles.launch("worker:1")

    first = story.run(300, hook)
    story.dispatcher.wait_for_workers(2, 60.0)
    second = story.run(300)
    return story.end(first=first, second=second)


def drained(roles: Roles) -> dict[str, Any]:
    """Worker 1 is drained in mid-run, killed, and started anew; then worker 0, which had to wait for it."""
    story = Story(roles, spin=500)
    story.dispatcher.wait_for_workers(2, 30.0)
    attempts: list[int] = []

    def steps() -> Iterator[None]:
        """What this thread does between outcomes: it starts the processes, which die with the thread that did."""
        while story.done < 50:
            yield
        for task, seconds, then in ((1, 60.0, roles.kill), (0, 0.5, roles.launch), (0, 60.0, roles.kill)):
            answer = asker.submit(story.dispatcher.drain, task, seconds)
            while not answer.done():
                yield
            answers.append(answer.result().value)
            then("worker:0" if len(answers) == 3 else "worker:1")

    def hook(outcome: Outcome) -> None:
        attempts.append(outcome.attempts)
        next(doing, None)

    answers: list[str] = []
    doing = steps()
    with ThreadPoolExecutor(1) as asker:
        first = story.run(100, hook, until=lambda: len(answers) == 3)
        live_meanwhile = sorted(story.dispatcher.live)
        story.dispatcher.wait_for_workers(2, 5.0)  # a look has to find it silent: nobody launches it yet
        roles.launch("worker:0")
        joined = story.dispatcher.wait_for_workers(2, 60.0)
        second = story.run(100, hook)
        answers.append(story.dispatcher.drain(2, 0.5).value)
        story.dispatcher.holders = frozenset({0})
        answers.append(story.dispatcher.drain(0, 0.5).value)
    return story.end(
        answers=answers, attempts=max(attempts), first=first, second=second, joined=joined,
        live_meanwhile=live_meanwhile,
    )  # fmt: skip


def stopped_in_run(roles: Roles) -> dict[str, Any]:
    """Worker 1 is stopped in mid-step (its connections stay open), goes on later, and returns."""
    story = Story(roles, spin=2000)
    story.dispatcher.wait_for_workers(3, 30.0)
    stopped = roles.running["worker:1"]

    def hook(_: Outcome) -> None:
        if story.done == 100:
            stopped.send_signal(signal.SIGSTOP)

    first = story.run(400, hook, until=lambda: 1 not in story.dispatcher.membership.live)
    live_meanwhile = sorted(story.dispatcher.membership.live)
    stopped.send_signal(signal.SIGCONT)
    joined = story.dispatcher.wait_for_workers(3, 30.0)
    second = story.run(300)
    return story.end(first=first, second=second, live_meanwhile=live_meanwhile, joined=joined)


def stopped_while_tracing(roles: Roles) -> dict[str, Any]:
    """Worker 1 is stopped before the functions are traced and goes on after the first run."""
    begin = time.monotonic()
    story = Story(roles, during_trace=lambda: roles.running["worker:1"].send_signal(signal.SIGSTOP))
    connected = time.monotonic() - begin
    story.dispatcher.wait_for_workers(2, 30.0)
    joined = story.dispatcher.wait_for_workers(3, 4.0)
    first = story.run(200)
    roles.running["worker:1"].send_signal(signal.SIGCONT)
    later = story.dispatcher.wait_for_workers(3, 30.0)
    second = story.run(300)
    return story.end(connect_seconds=connected, joined=joined, later=later, first=first, second=second)


def traced_while_stopped(roles: Roles) -> dict[str, Any]:
    """Another function is traced while a stopped worker is in the cluster: only the watchdog process can help then."""
    story = Story(roles)
    story.dispatcher.wait_for_workers(3, 30.0)
    story.run(50)
    roles.running["worker:1"].send_signal(signal.SIGSTOP)
    begin = time.monotonic()
    trace(lambda x: tf.reduce_sum(x * 3.0), tf.TensorSpec([7], tf.float32))
    frozen = time.monotonic() - begin
    first = story.run(200)
    roles.running["worker:1"].send_signal(signal.SIGCONT)
    later = story.dispatcher.wait_for_workers(3, 30.0)
    return story.end(frozen_seconds=frozen, first=first, later=later)


def stopped_while_joining(roles: Roles) -> dict[str, Any]:
    """Worker 1 answers a probe, and is stopped before the runtime has taken it in."""
    story = Story(roles, absent=("worker:1",))
    story.dispatcher.wait_for_workers(2, 30.0)
    story.run(50)
    roles.start("worker:1")
    stopped, update = roles.running["worker:1"], story.runtime.update
    tries: list[frozenset[int]] = []

    def stop_and_update(workers: frozenset[int]) -> None:
        if 1 in workers and not tries:
            tries.append(workers)
            stopped.send_signal(signal.SIGSTOP)
        update(workers)

    with mock.patch.object(story.runtime, "update", stop_and_update):
        while not tries:
            story.dispatcher.wait_for_workers(3, 1.0)
        first = story.run(200)
    stopped.send_signal(signal.SIGCONT)
    later = story.dispatcher.wait_for_workers(3, 60.0)
    second = story.run(200)
    return story.end(first=first, second=second, later=later)


def late_reply(roles: Roles) -> dict[str, Any]:
    """Worker 1 is stopped in mid-step until another has done its item: its own late push is dropped at the shards."""
    story = Story(roles, spin=6_000)
    story.dispatcher.wait_for_workers(3, 30.0)
    stopped, late = roles.running["worker:1"], story.dispatcher.membership.workers[1]
    waits_for: list[int] = []
    stuck: list[Item | None] = []

    def under_way() -> float:
        """How far worker 1 is with its item, as a share of the time that an item takes it."""
        usual = late.deadlines["update"].median_seconds
        if late.phase is not Phase.BUSY or usual is None or late.served < 5:
            return 0.0
        return (time.monotonic() - (late.due - late.deadlines["update"].seconds())) / usual

    def hook(outcome: Outcome) -> None:
        if not waits_for and late.item is not None and 0.2 < under_way() < 0.6:
            stopped.send_signal(signal.SIGSTOP)
            waits_for.append(late.item.id)
            stuck.append(late.item)
        elif waits_for and outcome.item.id == waits_for[0]:
            stopped.send_signal(signal.SIGCONT)

    def over() -> bool:
        return bool(waits_for) and late.phase in (Phase.IDLE, Phase.BUSY) and late.item not in stuck

    first = story.run(60, hook, until=over)
    story.dispatcher.wait_for_workers(3, 30.0)
    second = story.run(40)
    return story.end(first=first, second=second, waits_for=waits_for)


def server_lost(roles: Roles) -> dict[str, Any]:
    """The parameter server dies: the run ends with an error that says so."""
    story = Story(roles)
    story.dispatcher.wait_for_workers(2, 30.0)
    begin, message = time.monotonic(), ""

    def hook(_: Outcome) -> None:
        if story.done == 50:
            roles.kill("ps:0")

    try:
        story.run(500, hook)
    except ParameterServerLost as problem:
        message = str(problem)
    seconds = time.monotonic() - begin
    story.dispatcher.close()
    return {"message": message, "seconds": seconds}


def lane_places(roles: Roles) -> dict[str, Any]:
    """Where a call's arguments and what is fetched lie while that is done inside a worker's lane."""
    story = Story(roles)
    story.dispatcher.wait_for_workers(1, 30.0)
    places: dict[str, list[str]] = {"arguments": [], "fetched": []}

    def spy(operation: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            made = operation(*arguments, **named)
            places[name].append(made.device)
            return made

        return call

    # The lane's own thread makes them; nothing else of this process does meanwhile.
    with (
        mock.patch.object(engine_runtime, "ops", SimpleNamespace(EagerTensor=spy(ops.EagerTensor, "arguments"))),
        mock.patch.object(tf.raw_ops, "Identity", spy(tf.raw_ops.Identity, "fetched")),
    ):
        story.run(2)
        fetched_of_calls = len(places["fetched"])
        known = set(context.context().list_function_names())
        story.runtime.ask_server(0)
        sent = sorted(set(context.context().list_function_names()) - known)
        places["fetched"].clear()
        with story.runtime.lane(0):
            on_worker = tf.raw_ops.Fill(dims=[3], value=1.0)
            engine_runtime.fetched(on_worker)
    return story.end(**places, fetched_of_calls=fetched_of_calls, came_from=on_worker.device, sent_to_ask=sent)


def left(roles: Roles) -> dict[str, Any]:
    """Two jobs after one another on one parameter server: what the first held is free for the second."""
    roles.start("ps:0")
    server = psutil.Process(roles.running["ps:0"].pid)
    runtime = Runtime(Peers(roles.address("coordinator"), (roles.address("ps:0"),), ()))
    kept, memory = [], [server.memory_info().rss]
    for _ in range(2):
        runtime.update(frozenset())
        with tf.device(device("ps", 0)):
            kept.append(tf.Variable(tf.zeros([JOB_BYTES // 4])))
        memory.append(server.memory_info().rss)
        runtime.close()
    return {"memory": memory, "job": JOB_BYTES}


STORIES = {
    story.__name__: (story, servers, workers)
    for story, servers, workers in [
        (absent_at_connect, 1, 3),
        (dead_and_returning, 2, 3),
        (drained, 2, 2),
        (stopped_in_run, 1, 3),
        (stopped_while_tracing, 1, 3),
        (traced_while_stopped, 1, 3),
        (stopped_while_joining, 1, 3),
        (late_reply, 2, 3),
        (server_lost, 1, 2),
        (lane_places, 1, 1),
        (path_reset, 1, 2),
        (path_cut, 1, 2),
        (half_stopped, 1, 10),
        (lane_of_nobody, 1, 1),
        (left, 1, 1),
    ]
}


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
