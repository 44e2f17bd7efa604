"""`fab job list|attach|cancel`, on a node that is this machine, and on a cluster that is none."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from core.ground.errors import ExitCode
from core.inventory.templates import local_inventory
from deploy.jobs.attached_job import run_attached
from deploy.jobs.node_jobs import NodeJobs
from deploy.jobs.services import JobSpec
from tests.deploy.job_node import JobNode
from tests.deploy.typed import Fab


class Services:
    """`SubmittedJobs`, with one node."""

    def __init__(self, node: JobNode) -> None:
        self._node = node

    def run(self, spec: JobSpec) -> int:
        return run_attached(self._node.jobs(), spec.job, spec.flags)

    def running_job(self) -> None:
        return None

    @contextmanager
    def node_jobs(self) -> Iterator[NodeJobs]:
        yield self._node.jobs()


@pytest.fixture
def node(node: JobNode, monkeypatch: pytest.MonkeyPatch) -> JobNode:
    """Its inventory is in the folder where commands are typed."""
    monkeypatch.setattr("deploy.jobs.attached_job.SubmittedJobs", lambda *_: Services(node))
    return node


def test_a_job_is_begun_listed_cancelled_and_attached_to(
    node: JobNode, fab: Fab, tmp_path: Path
) -> None:
    fab("job list").says("\nno job yet\n")
    _, name = node.waiting()
    (listed,) = fab("job list --json").json()["jobs"]
    assert (listed["id"], listed["state"], listed["pid"]) == (name, "running", node.pid(name))
    fab("job cancel").says(f"\njob {name}: cancelled\nresult: ")
    fab(f"job cancel --job {name}").says(f"\njob {name} has ended already: cancelled\n")
    run = "runs/20991121T223000Z-train"
    fab("job attach --checkpoints").says(
        f"\nresult: here/{run}/result.json\n", code=ExitCode.CANCELLED
    )
    assert (tmp_path / "here" / run / "checkpoints/update-1.json").read_text() == "large"
    fab("job attach --job other").says(code=ExitCode.BAD_USAGE)
    id_, state, *_, folder = fab("job list").says().stdout.splitlines()[-1].split()
    assert (id_, state, folder) == (name, "cancelled", run)


def test_a_local_cluster_says_where_its_jobs_are(tmp_path: Path, fab: Fab) -> None:
    (tmp_path / "inventory.yaml").write_text(local_inventory(1, 1))
    fab("job list").says("\nno job runs\n")
    for action in ("attach", "cancel"):
        fab(f"job {action}").warns(
            "connection: local: a job runs in the foreground of the command that began it",
            "none runs now: `fab job train` begins one\n",
            code=ExitCode.BAD_USAGE,
        )
