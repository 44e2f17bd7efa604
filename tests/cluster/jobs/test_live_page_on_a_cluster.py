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


def test_the_story_goes_on_with_another_coordinator(cluster: Cluster) -> None:
    with cluster.training(*LONG) as job:
        before = status_when(
            job, cluster, lambda found: found["train"]["checkpoints"] and samples(found) > 2
        )
        folder = job.kill()
    assert "was interrupted" in str(read_run(folder).reason)
    for name in list(cluster.processes):  # as `fab` does: the dead one's variables live on in them
        cluster.replace(name)
    enough = samples(before) + 4
    with cluster.training(*LONG, resumed=folder) as job:
        found = status_when(
            job, cluster, lambda found: samples(found) > enough and found["run"] == folder.name
        )
        job.cancelled()
    assert found["started"] == before["started"]
    assert found["elapsed_seconds"] > before["elapsed_seconds"]
    assert [event["kind"] for event in found["events"]].count("resumed") == 1
    assert {sample["live"] for sample in found["samples"]} >= {0, 2}
    view = read_run(folder)
    assert view.train is not None
    assert view.train.resumptions == 1
    assert view.samples[0].seconds == before["samples"][0]["seconds"]


@pytest.mark.parametrize(("mode", "worked"), [("single", "coordinator:0"), ("sync", "worker:0")])
def test_other_modes_have_it_too(cluster: Cluster, mode: str, worked: str) -> None:
    alone = cluster.part(workers=1)
    with alone.training(f"mode={mode}", *LONG) as job:
        found = status_when(job, alone, lambda found: samples(found) > 1)
        job.cancelled()
    assert found["samples"][-1]["workers"][worked] > 0
    assert found["samples"][-1]["live"] == 1


def test_pi_has_it_too(cluster: Cluster) -> None:
    done = cluster.job("pi", "jobs.pi.samples=20000000", "jobs.pi.chunk_samples=1000000")
    view = read_run(done.run)
    assert (view.job, view.state, view.cluster) == ("pi", "done", cluster.inventory.cluster)
    assert view.pi is not None
    points = view.pi.points
    assert [point.samples for point in points] == [1_000_000 * chunk for chunk in range(1, 21)]
    assert abs(points[-1].estimate - 3.14159) < 6 * points[-1].standard_error


def test_evaluate_has_it_too(cluster: Cluster) -> None:
    cluster.train("epochs=1")
    done = cluster.job("evaluate", *cluster.settings())
    view = read_run(done.run)
    assert view.confusion is not None
    assert (view.state, view.confusion.split) == ("done", "test")
    assert view.progress is not None
    assert view.progress.done == view.progress.total
    every = [role for node in view.nodes for role in node.roles]
    windows = {role.task: role.windows for role in every if role.windows}
    assert sum(windows.values()) == done.result["evaluated_windows"]
    assert {task.partition(":")[0] for task in windows} == {"worker"}
