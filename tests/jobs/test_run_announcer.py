"""Who is told of a run, and when; and one run's id in the logs of a whole cluster."""

import json
import queue
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from prometheus_client import CollectorRegistry

from cluster.control.actions import Actions
from cluster.engine.membership import Membership
from cluster.inventory.task import Task
from cluster.jobs.roles import RunAnnouncer
from cluster.logs.lines import LogLine, read_line
from cluster.metrics import exporter
from tests.jobs.cluster import HANG_SECONDS, PROJECT, SMALL, cluster_of, free_port, own_recordings

RUN = "20261121T224500Z-train"
Heard = queue.SimpleQueue[tuple[str, str]]


def task(role: str, index: int, metrics_port: int) -> Task:
    return Task(role, index, "here", "127.0.0.1", 1, metrics_port)  # type: ignore[arg-type]


@contextmanager
def listening(heard: Heard, task: Task) -> Iterator[None]:
    actions = Actions(
        begin_run=lambda run: heard.put((task.name, run)), end_run=lambda run: heard.put((task.name, "end"))
    )
    serving = exporter.serve(CollectorRegistry(), "127.0.0.1", task.metrics_port, lambda: True, actions=actions)
    try:
        yield
    finally:
        serving.close()


def test_roles_hear_of_a_run_when_they_come_and_when_it_ends() -> None:
    heard: Heard = queue.SimpleQueue()
    ps, early, late = (task(role, index, free_port()) for role, index in (("ps", 0), ("worker", 0), ("worker", 1)))
    membership = Membership(range(2))
    with ExitStack() as stack:
        stack.enter_context(listening(heard, ps))
        stack.enter_context(listening(heard, early))
        with RunAnnouncer((ps, early, late), RUN) as announcer:
            assert {heard.get(timeout=HANG_SECONDS) for _ in range(2)} == {("ps:0", RUN), ("worker:0", RUN)}
            announcer.watch(membership)
            stack.enter_context(listening(heard, late))
            assert heard.get(timeout=HANG_SECONDS) == ("worker:1", RUN)
            membership.workers[0].joined = 7.0  # another process, perhaps
            assert heard.get(timeout=HANG_SECONDS) == ("worker:0", RUN)
        assert {heard.get(timeout=HANG_SECONDS) for _ in range(3)} == {
            (name, "end") for name in ("ps:0", "worker:0", "worker:1")
        }
    assert heard.empty()


def test_without_a_run_nobody_is_told() -> None:
    heard: Heard = queue.SimpleQueue()
    ps = task("ps", 0, free_port())
    with listening(heard, ps), RunAnnouncer((ps,), ""):
        pass
    assert heard.empty()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_one_run_is_one_story_in_the_logs_of_every_role(log_format: str) -> None:
    flags = ["--log-format", log_format]
    with cluster_of(2, start=lambda name: False) as cluster:
        own_recordings(cluster.folder / "own.npz")
        processes = {}
        for place in cluster.inventory.tasks():
            if place.role != "coordinator":
                command = [sys.executable, "-m", f"{place.role}_node", "--inventory", str(cluster.inventory.path)]
                with (cluster.folder / place.name).open("wb") as log:
                    processes[place.name] = subprocess.Popen(
                        [*command, "--task", str(place.index), "--die-with-parent", *flags], cwd=PROJECT, stderr=log
                    )
        cluster.processes |= processes
        settings = [*SMALL, f"jobs.train.data.source={cluster.folder}/own.npz", "jobs.train.epochs=2"]
        with cluster.begun("train", *settings, flags=flags) as job:
            found = cluster.metrics_when(job, "pscluster_train_steps_total", 1)
            assert found
            cluster.kill("worker:1")
            with (cluster.folder / "worker:1 again").open("wb") as log:
                cluster.processes["worker:1"] = subprocess.Popen(
                    [*command, "--task", "1", "--die-with-parent", *flags], cwd=PROJECT, stderr=log
                )
            done = job.end()
        assert done.code == 0, done.errors
        assert done.folder is not None
        run = done.folder.name
        told = _lines((done.folder / "coordinator.log").read_text(), log_format)
        assert {line.run for line in told} == {run}
        assert {line.role for line in told} == {"coordinator:0"}
        assert [told[0].message, told[-1].message] == [f"run {run} begins", f"run {run} is over"]
        if log_format == "json":
            assert all(read_line(line) for line in done.errors.splitlines() if line.startswith("{"))
        for name in ("ps:0", "worker:0"):
            mine = _lines((cluster.folder / name).read_text(), log_format)
            words = [line.message for line in mine if line.run == run]
            assert words == [f"run {run} begins", f"run {run} is over"]
            assert {line.role for line in mine} == {name}
        first = _lines((cluster.folder / "worker:1").read_text(), log_format)
        assert [line.message for line in first if line.run] == [f"run {run} begins"]


def _lines(text: str, log_format: str) -> list[LogLine]:
    ours = [line for line in text.splitlines() if line.startswith("{" if log_format == "json" else "20")]
    if log_format == "json":
        for line in ours:
            json.loads(line)
    return [line for line in map(read_line, ours) if line is not None and line.role]
