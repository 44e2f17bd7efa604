"""The status of real trainings over HTTP: it moves, shows a killed worker, and goes on."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from core.status.past_run import read_run
from tests.cluster.jobs.cluster import Cluster, Running

LONG = ("epochs=100000", "checkpoint.every_seconds=1")

pytestmark = pytest.mark.long

Status = dict[str, Any]


def status_when(job: Running, cluster: Cluster, holds: Callable[[Status], object]) -> Status:
    """The job's status, once it is so."""
    port = cluster.inventory.task("coordinator", 0).page_port

    def look() -> Status | None:
        try:
            found: Status = httpx.get(f"http://127.0.0.1:{port}/api/status").json()
        except httpx.TransportError:
            return None
        return found if holds(found) else None

    return job.when(look)


def roles(found: Status) -> dict[str, Status]:
    return {role["task"]: role for node in found["nodes"] for role in node["roles"]}


def samples(found: Status) -> int:
    return len(found["samples"])


def test_it_moves_and_shows_a_killed_worker(cluster: Cluster) -> None:
    with cluster.training(*LONG) as job:
        early = status_when(job, cluster, lambda found: samples(found) > 1)
        later = status_when(job, cluster, lambda found: samples(found) > samples(early) + 1)
        assert later["progress"]["done"] > early["progress"]["done"]
        assert later["windows_per_second"] > 0
        assert later["train"]["epoch"] >= early["train"]["epoch"]
        assert roles(later)["worker:1"]["state"] in ("idle", "busy")
        cluster.kill("worker:1")
        status_when(job, cluster, lambda found: roles(found)["worker:1"]["state"] == "absent")
        left = "worker:1 left the cluster"
        after = status_when(job, cluster, lambda found: left in str(found["events"]))
        done = after["progress"]["done"]
        status_when(job, cluster, lambda found: found["progress"]["done"] > done)
        view = read_run(job.cancelled().run)
    assert view.state == "cancelled"
    *_, before_last, last = (span.state for span in view.spans if span.task == "worker:1")
    assert (before_last, last) == ("working", "away")
    known = {role.task for node in view.nodes for role in node.roles if role.memory_bytes}
    assert known >= {"ps:0", "worker:0"}
