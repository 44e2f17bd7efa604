"""Who is told of a run, and when."""

import queue
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial

import pytest
from prometheus_client import CollectorRegistry

from cluster.jobs import roles
from cluster.jobs.job_metrics import CoordinatorMetrics
from cluster.jobs.roles import RunAnnouncer
from core.control.actions import Actions
from core.engine.membership import Membership
from core.inventory import RoleName, Task
from core.metrics import exporter
from tests.cluster.jobs.cluster import HANG_SECONDS
from tests.ports import free_port

RUN = "20261121T224500Z-train"
Heard = queue.SimpleQueue[tuple[str, str]]


def task(role: RoleName, index: int) -> Task:
    return Task(role, index, "here", "127.0.0.1", 1, free_port())


@contextmanager
def listening(heard: Heard, task: Task) -> Iterator[None]:
    actions = Actions(
        begin_run=lambda run: heard.put((task.name, run)),
        end_run=lambda run: heard.put((task.name, "end")),
    )
    serving = exporter.serve(
        CollectorRegistry(), "127.0.0.1", task.metrics_port, lambda: True, actions=actions
    )
    try:
        yield
    finally:
        serving.close()


def heard_now(heard: Heard, count: int) -> set[tuple[str, str]]:
    return {heard.get(timeout=HANG_SECONDS) for _ in range(count)}


def test_roles_hear_of_a_run_when_they_come_and_when_it_ends() -> None:
    heard: Heard = queue.SimpleQueue()
    ps, early, late = (task("ps", 0), task("worker", 0), task("worker", 1))
    membership = Membership(range(2))
    with ExitStack() as stack:
        stack.enter_context(listening(heard, ps))
        stack.enter_context(listening(heard, early))
        with RunAnnouncer((ps, early, late), RUN, {}) as announcer:
            assert heard_now(heard, 2) == {("ps:0", RUN), ("worker:0", RUN)}
            announcer.watch(membership)
            stack.enter_context(listening(heard, late))
            assert heard_now(heard, 1) == {("worker:1", RUN)}
            membership.workers[0].joined = 7.0  # another process, perhaps
            assert heard_now(heard, 1) == {("worker:0", RUN)}
        assert heard_now(heard, 3) == {(each.name, "end") for each in (ps, early, late)}
    assert heard.empty()


def test_a_job_waits_behind_its_result_until_another_process_is_there_for_one_that_restarts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roles, "ANNOUNCED_SECONDS", HANG_SECONDS)
    metrics = CoordinatorMetrics()
    begun: queue.SimpleQueue[str] = queue.SimpleQueue()
    followed: queue.SimpleQueue[str] = queue.SimpleQueue()
    polls: list[str] = []

    def ready() -> bool:
        polls.append(serving._server.process)
        if len(polls) == 2:
            serving._server.process = "the next"
        return True

    ps = task("ps", 0)
    actions = Actions(begin_run=begun.put, end_run=lambda run: partial(followed.put, run))
    serving = exporter.serve(
        CollectorRegistry(), "127.0.0.1", ps.metrics_port, ready, actions=actions
    )
    with closing(serving), metrics.until_read(lambda: False):
        with RunAnnouncer((ps,), RUN, metrics.restarting):
            begun.get(timeout=HANG_SECONDS)
        assert not polls
    assert len(polls) == 2
    assert followed.get(timeout=HANG_SECONDS) == RUN


def test_without_a_run_nobody_is_told() -> None:
    heard: Heard = queue.SimpleQueue()
    ps = task("ps", 0)
    with listening(heard, ps), RunAnnouncer((ps,), "", {}):
        pass
    assert heard.empty()
