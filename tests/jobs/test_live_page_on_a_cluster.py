"""The status of real trainings over HTTP: it moves, a killed worker shows, a killed coordinator's story goes on."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cluster.inventory import load
from cluster.status.history import read_run
from tests.jobs.cluster import HANG_SECONDS, SMALL, Cluster, cluster_of, own_recordings

LONG = (*SMALL, "jobs.train.epochs=400", "jobs.train.checkpoint.every_seconds=1")

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with cluster_of(2) as running:
        yield running


def status(cluster: Cluster) -> dict[str, Any] | None:
    """None while nobody answers."""
    try:
        answer = httpx.get(f"http://127.0.0.1:{cluster.inventory.task('coordinator', 0).page_port}/api/status")
    except httpx.TransportError:
        return None
    found: dict[str, Any] = answer.json()
    return found


def status_when(cluster: Cluster, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    end = time.monotonic() + HANG_SECONDS
    while time.monotonic() < end:
        found = status(cluster)
        if found is not None and holds(found):
            return found
        time.sleep(0.05)
    raise AssertionError(f"not so in time: {found}")


def state_of(found: dict[str, Any], task: str) -> str:
    (state,) = [role["state"] for node in found["nodes"] for role in node["roles"] if role["task"] == task]
    return str(state)


def samples(found: dict[str, Any]) -> int:
    return len(found["samples"])


def test_it_moves_and_shows_a_killed_worker(cluster: Cluster) -> None:
    data = own_recordings(cluster.folder / "own.npz")
    with cluster.begun("train", f"jobs.train.data.source={data}", *LONG) as job:
        early = status_when(cluster, lambda found: samples(found) > 1)
        later = status_when(cluster, lambda found: samples(found) > samples(early) + 1)
        assert later["progress"]["done"] > early["progress"]["done"]
        assert later["windows_per_second"] > 0
        assert later["train"]["epoch"] >= early["train"]["epoch"]
        assert state_of(later, "worker:1") in ("idle", "busy")
        cluster.kill("worker:1")
        killed = time.monotonic()
        status_when(cluster, lambda found: state_of(found, "worker:1") == "absent")
        assert time.monotonic() - killed < 3.0  # what the issue asks for
        after = status_when(cluster, lambda found: "worker:1 left the cluster" in str(found["events"]))
        status_when(cluster, lambda found: found["progress"]["done"] > after["progress"]["done"])
        job.interrupt()
        done = job.end()
    assert done.code == 130, done.errors
    assert done.folder is not None
    view = read_run(done.folder)
    assert view.state == "cancelled"
    assert [span.state for span in view.spans if span.task == "worker:1"][-2:] == ["working", "away"]
    assert {role.task for node in view.nodes for role in node.roles if role.memory_bytes} >= {"ps:0", "worker:0"}


def test_the_story_goes_on_with_another_coordinator(cluster: Cluster) -> None:
    data = own_recordings(cluster.folder / "own.npz")
    settings = (f"jobs.train.data.source={data}", *LONG)
    with cluster.begun("train", *settings) as job:
        before = status_when(cluster, lambda found: found["train"]["checkpoints"] and samples(found) > 2)
        folder = job.kill()
    assert "was interrupted" in str(read_run(folder).reason)
    for name in list(cluster.processes):  # as `fab` does: the dead one's variables live on in them
        cluster.kill(name)
    cluster.start("ps:0", "worker:0", "worker:1")
    with cluster.begun("train", *settings, resumed=folder) as job:
        found = status_when(cluster, lambda found: samples(found) > samples(before) + 4 and found["run"] == folder.name)
        job.interrupt()
        assert job.end().code == 130
    assert found["started"] == before["started"]
    assert found["elapsed_seconds"] > before["elapsed_seconds"]
    assert [event["kind"] for event in found["events"]].count("resumed") == 1
    assert {sample["live"] for sample in found["samples"]} >= {0, 2}
    view = read_run(folder)
    assert view.train is not None
    assert view.train.resumptions == 1
    assert view.samples[: samples(before)][0].seconds == before["samples"][0]["seconds"]


@pytest.mark.parametrize("mode", ["single", "sync"])
def test_other_modes_have_it_too(mode: str) -> None:
    with cluster_of(1, start=lambda _: mode != "single") as cluster:
        data = own_recordings(cluster.folder / "own.npz")
        with cluster.begun("train", f"jobs.train.data.source={data}", f"jobs.train.mode={mode}", *LONG) as job:
            found = status_when(cluster, lambda found: samples(found) > 1)
            job.interrupt()
            assert job.end().code == 130
        worked = "coordinator:0" if mode == "single" else "worker:0"
        assert found["samples"][-1]["workers"][worked] > 0
        assert found["samples"][-1]["live"] == 1


def test_pi_and_evaluate_have_it_too(cluster: Cluster) -> None:
    inventory = load(cluster.inventory.path)
    done = cluster.job("pi", "jobs.pi.samples=20000000", "jobs.pi.chunk_samples=1000000")
    assert done.folder is not None
    view = read_run(done.folder)
    assert (view.job, view.state, view.cluster) == ("pi", "done", inventory.cluster)
    assert view.pi is not None
    assert [point.samples for point in view.pi.points] == [1_000_000 * chunk for chunk in range(1, 21)]
    assert abs(view.pi.points[-1].estimate - 3.14159) < 6 * view.pi.points[-1].standard_error
    data = own_recordings(Path(cluster.folder) / "own.npz")
    settings = (f"jobs.train.data.source={data}", *SMALL)
    assert cluster.job("train", *settings, "jobs.train.epochs=1").code == 0
    evaluated = cluster.job("evaluate", *settings)
    assert evaluated.folder is not None
    view = read_run(evaluated.folder)
    assert view.confusion is not None
    assert (view.state, view.confusion.split) == ("done", "test")
    assert view.progress is not None
    assert view.progress.done == view.progress.total
    by_task = {role.task: role.windows for node in view.nodes for role in node.roles if role.windows}
    assert sum(by_task.values()) == evaluated.result["evaluated_windows"]
    assert {task.partition(":")[0] for task in by_task} == {"worker"}
