"""Who is told of a run, and when; and one run's id in the logs of a whole cluster."""

import json
import queue
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from prometheus_client import CollectorRegistry

from cluster.jobs.roles import RunAnnouncer
from core.control.actions import Actions
from core.engine.membership import Membership
from core.inventory.task import RoleName, Task
from core.logs.lines import LogLine, read_line
from core.metrics import exporter
from tests.cluster.jobs.cluster import HANG_SECONDS, cluster_of
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
        with RunAnnouncer((ps, early, late), RUN) as announcer:
            assert heard_now(heard, 2) == {("ps:0", RUN), ("worker:0", RUN)}
            announcer.watch(membership)
            stack.enter_context(listening(heard, late))
            assert heard_now(heard, 1) == {("worker:1", RUN)}
            membership.workers[0].joined = 7.0  # another process, perhaps
            assert heard_now(heard, 1) == {("worker:0", RUN)}
        assert heard_now(heard, 3) == {(each.name, "end") for each in (ps, early, late)}
    assert heard.empty()


def test_without_a_run_nobody_is_told() -> None:
    heard: Heard = queue.SimpleQueue()
    ps = task("ps", 0)
    with listening(heard, ps), RunAnnouncer((ps,), ""):
        pass
    assert heard.empty()


@pytest.mark.long
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_one_run_is_one_story_in_the_logs_of_every_role(log_format: str) -> None:
    flags = ["--log-format", log_format]
    with cluster_of(2, flags=flags) as cluster:
        with cluster.training("epochs=2", flags=flags) as job:
            assert cluster.metrics_when(job, "pscluster_train_steps_total", 1)
            cluster.kill("worker:1")
            first = cluster.log("worker:1").read_text()
            cluster.start("worker:1")
            done = job.end(0)
        run = done.run.name
        begins, over = (f"run {run} begins", f"run {run} is over")
        told = _lines(done.log, log_format)
        assert {(line.run, line.role) for line in told} == {(run, "coordinator:0")}
        assert [told[0].message, told[-1].message] == [begins, over]
        if log_format == "json":
            assert all(read_line(line) for line in done.errors.splitlines() if line.startswith("{"))
        for name in ("ps:0", "worker:0"):
            mine = _lines(cluster.log(name).read_text(), log_format)
            assert [line.message for line in mine if line.run == run] == [begins, over]
            assert {line.role for line in mine} == {name}
        assert [line.message for line in _lines(first, log_format) if line.run] == [begins]


def _lines(text: str, log_format: str) -> list[LogLine]:
    begin = "{" if log_format == "json" else "20"
    ours = [line for line in text.splitlines() if line.startswith(begin)]
    if log_format == "json":
        for line in ours:
            json.loads(line)
    return [line for line in map(read_line, ours) if line is not None and line.role]
