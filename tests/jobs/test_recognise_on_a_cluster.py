"""The job `recognise` on real roles: the bytes of `single`, whoever dies."""

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.cluster import HANG_SECONDS, Cluster, Running, cluster_of
from tests.jobs.test_recognise_here import HOP, recorded, trained
from tests.recognise.readings import walk

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(workers=2) as running:
        trained(running.folder / "run")
        recorded(running.folder / "day.npz", walk(HOP * 25_000))
        yield running


def settings(cluster: Cluster) -> tuple[str, ...]:
    return f"jobs.recognise.run={cluster.folder / 'run'}", f"jobs.recognise.data={cluster.folder / 'day.npz'}"


@pytest.fixture(scope="module")
def alone(cluster: Cluster) -> bytes:
    """What this machine labels without workers."""
    done = cluster.job("recognise", *settings(cluster), "jobs.train.mode=single")
    assert done.code == 0, done.errors
    return labels_of(done.folder)


def labels_of(folder: Path | None) -> bytes:
    assert folder is not None
    return (folder / "labels.csv").read_bytes()


def until_it_labels(job: Running) -> Path:
    """The run's folder, once some labels are written."""
    end = time.monotonic() + HANG_SECONDS
    while time.monotonic() < end:
        folder = job.folder()
        if folder is not None and any(path.stat().st_size > 4096 for path in folder.glob(".labels.csv.*")):
            return folder
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.process.wait(0.05)
            raise AssertionError(f"ended before it labelled: {job.end().errors}")
    raise AssertionError("nothing was labelled")


def test_workers_write_the_bytes_of_this_machine_alone(cluster: Cluster, alone: bytes) -> None:
    done = cluster.job("recognise", *settings(cluster))
    assert done.code == 0, done.errors
    assert labels_of(done.folder) == alone
    assert set(done.result["windows_per_second_by_worker"]) == {"worker:0", "worker:1"}
    assert done.result["windows"] == alone.count(b"\n") - 1


def test_a_worker_killed_meanwhile_loses_nothing(cluster: Cluster, alone: bytes) -> None:
    with cluster.begun("recognise", *settings(cluster)) as job:
        until_it_labels(job)
        cluster.kill("worker:1")
        done = job.end()
    assert done.code == 0, done.errors
    assert "worker:1 left" in done.log
    assert labels_of(done.folder) == alone


def test_a_coordinator_killed_meanwhile_leaves_no_labels(cluster: Cluster) -> None:
    with cluster.begun("recognise", *settings(cluster)) as job:
        folder = until_it_labels(job)
        assert job.kill() == folder
    assert not (folder / "labels.csv").exists()
    assert not (folder / "result.json").exists()
