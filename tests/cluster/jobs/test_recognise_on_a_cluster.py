"""The job `recognise` on real roles: the bytes of `single`, whoever dies."""

from pathlib import Path

import pytest

from tests.cluster.conftest import Pool
from tests.cluster.jobs.cluster import Cluster, Done, Running
from tests.cluster.jobs.test_recognise_here import HOP, recorded, trained
from tests.recognise.readings import walk

pytestmark = pytest.mark.long

Settings = tuple[str, ...]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("recognised")
    trained(folder / "run")
    recorded(folder / "day.npz", walk(HOP * 25_000))
    return (f"jobs.recognise.run={folder / 'run'}", f"jobs.recognise.data={folder / 'day.npz'}")


@pytest.fixture(scope="module")
def alone(clusters: Pool, settings: Settings) -> bytes:
    """What this machine labels without workers."""
    job = clusters(2, 1).job("recognise", *settings, "jobs.train.mode=single", code=0)
    return labels_of(job)


def labels_of(done: Done) -> bytes:
    return (done.run / "labels.csv").read_bytes()


def until_it_labels(job: Running) -> Path:
    """The run's folder, once some labels are written."""

    def look() -> Path | None:
        folder = job.folder()
        if folder is None or not any(
            path.stat().st_size > 4096 for path in folder.glob(".labels.csv.*")
        ):
            return None
        return folder

    return job.when(look)


def test_workers_write_the_bytes_of_this_machine_alone(
    cluster: Cluster, settings: Settings, alone: bytes
) -> None:
    done = cluster.job("recognise", *settings, code=0)
    assert labels_of(done) == alone
    assert set(done.result["windows_per_second_by_worker"]) == {"worker:0", "worker:1"}
    assert done.result["windows"] == alone.count(b"\n") - 1


def test_a_worker_killed_meanwhile_loses_nothing(
    cluster: Cluster, settings: Settings, alone: bytes
) -> None:
    with cluster.begun("recognise", *settings) as job:
        until_it_labels(job)
        cluster.kill("worker:1")
        done = job.end(0)
    assert "worker:1 left" in done.log
    assert labels_of(done) == alone


def test_a_coordinator_killed_meanwhile_leaves_no_labels(
    cluster: Cluster, settings: Settings
) -> None:
    with cluster.begun("recognise", *settings) as job:
        folder = until_it_labels(job)
        assert job.kill() == folder
    assert not (folder / "labels.csv").exists()
    assert not (folder / "result.json").exists()
