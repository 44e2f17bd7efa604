"""Stories of `tests.core.engine.scenario`.

A parameter server is stopped, not dead, in each phase of a job; or it is TensorFlow's own.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

from core.engine.changes import ParameterServerLost, raise_if_cut_off, reaching_servers
from core.engine.membership import TimeLimits
from core.engine.runtime import Runtime
from core.ground.lazy import tf
from tests.core.engine.processes import Roles
from tests.core.engine.story import Story, Tell

SHIPPED = TimeLimits(first_reply_seconds=120.0)


def killed_in_run(roles: Roles, story: Story) -> None:
    story.run("first", 500, at={50: lambda: roles.kill("ps:1")})


def both_stopped_in_run(roles: Roles, story: Story) -> None:
    story.run("first", 500, at={50: lambda: roles.stop("ps:0", "ps:1")})


def stopped_in_change(roles: Roles, story: Story) -> None:
    """A worker dies with it."""
    roles.stop("ps:1")
    roles.kill("worker:0")
    story.run("first", 500)


def stopped_between_probe_and_question(roles: Roles, story: Story) -> None:
    """It stops when the coordinator has found that it listens, and is about to ask it."""
    ask = story.runtime.ask_server

    def stop_and_ask(task: int) -> None:
        roles.stop("ps:1")
        ask(task)

    roles.kill("worker:0")
    with mock.patch.object(story.runtime, "ask_server", stop_and_ask):
        story.run("first", 500)


PHASES: dict[str, Callable[[Roles, Story], None]] = {
    phase.__name__: phase
    for phase in (
        killed_in_run,
        both_stopped_in_run,
        stopped_in_change,
        stopped_between_probe_and_question,
    )
}


def message_of(lost: Callable[[], object]) -> str:
    """What the error says with which this ends."""
    try:
        lost()
    except ParameterServerLost as problem:
        return str(problem)
    return ""


def stopped(phase: str) -> Tell:
    """The story of this phase, which begins when some updates are done."""

    def tell(roles: Roles) -> dict[str, Any]:
        story = Story(roles, timing=SHIPPED)
        story.run("begin", 30)
        message = message_of(lambda: PHASES[phase](roles, story))
        departures = story.departures
        story.close()
        return {"message": message, "departures": departures}

    return tell


def mixed_servers(roles: Roles) -> dict[str, Any]:
    """TensorFlow's own server in two roles and the lean one in the third serve one cluster."""
    roles.stock = ("ps:0", "worker:1")
    story = Story(roles)
    story.run("first", 50)
    return story.end()


def server_stopped_for_a_moment(roles: Roles) -> dict[str, Any]:
    """It stops for less than it takes to be lost: then the run goes on, and nothing is lost."""
    story = Story(roles, timing=SHIPPED)
    story.run("begin", 50)
    roles.stop("ps:1")
    awake: list[float] = []
    began = time.monotonic()
    look = story.dispatcher._probe_away

    def wake(now: float) -> None:
        if now - began > 4.0 and not awake:
            awake.append(now)
            roles.go_on("ps:1")
        look(now)

    with mock.patch.object(story.dispatcher, "_probe_away", wake):
        story.run("first", 200, until=lambda: bool(awake))
    return story.end()


def server_stopped_while_connecting(roles: Roles) -> dict[str, Any]:
    """It is stopped before the runtime connects."""
    roles.start(*roles.server_names)
    roles.stop("ps:1")
    message = ""
    try:
        Runtime(replace(roles.peers, workers=()))
    except tf.errors.OpError:
        message = message_of(raise_if_cut_off)
    return {"message": message, "departures": {"1": 0}}


def server_stopped_at_the_end(roles: Roles) -> dict[str, Any]:
    """All work is done: it ends in order, and nobody waits for the server.

    Nor do variables that are freed later.
    """
    story = Story(roles, timing=SHIPPED)
    story.run("first", 50)
    total = story.shards.totals().applied
    roles.stop("ps:1")
    story.close()

    def read() -> None:
        with reaching_servers():
            story.shards.shards[1].counts.numpy()

    return {"message": message_of(read), "applied": total}
