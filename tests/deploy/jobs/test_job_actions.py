"""`fab job list|attach|cancel`, on a node that is this machine, and on a cluster that is none."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from invoke.exceptions import Exit

from cluster.errors import ExitCode
from deploy.cluster.inventory_choice import InventoryOpener
from deploy.commands import opening
from deploy.commands.jobs import attach, cancel, list_, train
from deploy.jobs.node_jobs import NodeJobs
from tests.deploy.job_node import JobNode

LOCAL = """schema: 1
cluster: here
nodes: [{name: here, address: 127.0.0.1, roles: [ps, worker, coordinator]}]
"""


class Services:
    """`SubmittedJobs`, with one node."""

    def __init__(self, node: JobNode) -> None:
        self._node = node

    def run_job(self, job: str, flags: list[str]) -> int:
        with self.node_jobs() as jobs:
            from deploy.jobs.attached_job import run_attached

            return run_attached(jobs, job, flags)

    def running_job(self) -> None:
        return None

    @contextmanager
    def node_jobs(self) -> Iterator[NodeJobs]:
        yield self._node.jobs()


Run = Callable[..., int]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Calls a command; its exit code."""
    monkeypatch.setattr(opening, "OPENER", InventoryOpener())

    def call(body: Callable[..., None], inventory: Path, **flags: Any) -> int:
        try:
            body(None, inventory=str(inventory), **flags)
        except Exit as end:
            if end.message:
                print(end.message)
            return end.code
        return 0

    return call


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobNode]:
    made = JobNode(tmp_path)
    monkeypatch.setattr("deploy.jobs.attached_job.SubmittedJobs", lambda *_: Services(made))
    yield made
    made.end()


def test_a_job_is_begun_listed_cancelled_and_attached_to(
    node: JobNode, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    path = node.inventory.path
    assert run(list_, path) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no job yet"
    node.play("waits")
    name = node.jobs().submit("train", [])
    node.until_it_waits()
    assert run(list_, path, json_=True) == 0
    (listed,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (listed["id"], listed["state"], listed["pid"]) == (name, "running", node.pid(name))
    assert run(cancel, path) == 0
    _, said, result = capsys.readouterr().out.splitlines()
    assert said == f"job {name}: cancelled"
    assert result.startswith("result: ")
    assert run(cancel, path, job=name) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"job {name} has ended already: cancelled"
    assert run(attach, path, checkpoints=True) == ExitCode.CANCELLED
    *_, result = capsys.readouterr().out.splitlines()
    run_folder = Path(result.removeprefix("result: ")).parent
    assert (run_folder / "checkpoints" / "one").read_text() == "large"
    assert run(attach, path, job="other") == ExitCode.BAD_USAGE
    assert run(list_, path) == 0
    row = capsys.readouterr().out.splitlines()[-1].split()
    assert row[:2] == [name, "cancelled"]
    assert row[-1] == "runs/20261121T223000Z-train"


def test_train_is_submitted_and_ends_as_the_job(node: JobNode, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    node.play("24")
    assert run(train, node.inventory.path, epochs="2", quiet=True) == ExitCode.FAILED
    assert "--quiet" in node.asked()
    assert capsys.readouterr().out.splitlines()[-1].startswith("result: ")


def test_a_local_cluster_says_where_its_jobs_are(tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(LOCAL)
    assert run(list_, path) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no job runs"
    for body in (attach, cancel):
        assert run(body, path) == ExitCode.BAD_USAGE
        last = capsys.readouterr().out.splitlines()[-1]
        assert "connection: local: a job runs in the foreground of the command that began it" in last
        assert last.endswith("none runs now: `fab job train` begins one")
