"""`pi` as a user runs it, and what every job says when the cluster is not as it should be."""

import json
import socket
from collections.abc import Iterator
from math import pi

import pytest

from cluster.errors import ExitCode
from tests.jobs.cluster import Cluster, Done, cluster_of

SETTINGS = ("jobs.pi.samples=6000001", "jobs.pi.chunk_samples=400000", "jobs.pi.seed=4")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(workers=2) as running:
        yield running


@pytest.fixture(scope="module")
def counted(cluster: Cluster) -> Done:
    return cluster.job("pi", *SETTINGS)


def test_the_estimate_is_within_five_standard_errors(counted: Done) -> None:
    assert counted.code == 0, counted.errors
    result = counted.result
    assert result["status"] == "done"
    assert result["samples"] == result["planned_samples"] == 6_000_001
    assert result["estimate"] == pytest.approx(4 * result["inside"] / 6_000_001)
    assert abs(result["estimate"] - pi) < 5 * result["standard_error"]
    assert result["standard_error"] == pytest.approx((pi * (4 - pi) / 6_000_001) ** 0.5, rel=0.01)


def test_the_calibration_is_kept(cluster: Cluster, counted: Done) -> None:
    kept = json.loads((cluster.runs / f"calibration-{cluster.inventory.cluster}.json").read_text())
    assert kept["samples_per_second"] == counted.result["samples_per_second"]
    assert set(kept["samples_per_second"]) <= {"worker:0", "worker:1"}
    assert all(speed > 0 for speed in kept["samples_per_second"].values())
    assert kept["samples_per_second"]


@pytest.mark.long
def test_one_worker_counts_the_same_points(cluster: Cluster, counted: Done) -> None:
    alone = cluster.part(workers=1).job("pi", *SETTINGS)
    assert alone.code == 0, alone.errors
    assert (alone.result["workers"], counted.result["workers"]) == (1, 2)
    assert alone.result["inside"] == counted.result["inside"]


@pytest.mark.long
def test_metrics_and_an_interrupt(cluster: Cluster) -> None:
    with cluster.begun("pi", "jobs.pi.samples=1000000000000000") as job:
        metrics = cluster.metrics_when(job, "pscluster_pi_samples_total", 10_000_000)
        job.interrupt()
        done = job.end()
    assert done.code == 130, done.errors
    assert all(name.startswith("pscluster_") for name in metrics)
    assert metrics["pscluster_pi_planned_samples"] == {("coordinator", "0"): 1e15}
    assert metrics["pscluster_pi_estimate_ratio"]["coordinator", "0"] == pytest.approx(pi, abs=0.01)
    assert metrics["pscluster_pi_standard_error_ratio"]["coordinator", "0"] > 0
    assert sum(metrics["pscluster_worker_state"].values()) == 2
    result = done.result
    assert result["status"] == "cancelled"
    assert 10_000_000 <= result["samples"] < result["planned_samples"]
    assert abs(result["estimate"] - pi) < 5 * result["standard_error"]


def one_line(done: Done) -> str:
    (line,) = [line for line in done.errors.splitlines() if not line.startswith("live page: ")]
    return line


def test_a_taken_port_of_the_coordinator_is_one_line(cluster: Cluster) -> None:
    port = cluster.inventory.task("coordinator", 0).port
    with socket.create_server(("127.0.0.1", port)):
        done = cluster.job("pi")
    assert done.code == ExitCode.PORT_TAKEN
    assert str(port) in one_line(done)
    assert done.result["status"] == "failed"


def test_bad_data_is_one_line_and_leaves_no_run(cluster: Cluster) -> None:
    done = cluster.job("train", "jobs.train.data.source=/nonexistent")
    assert done.code == ExitCode.BAD_USAGE
    assert "/nonexistent" in one_line(done)
    assert done.folder is None


@pytest.mark.long  # waits for the parameter server as long as one that only just starts may take
def test_no_parameter_server_is_one_line() -> None:
    with cluster_of(workers=1, start=lambda _: False) as nothing:
        done = nothing.job("pi")
        assert done.code == ExitCode.FAILED
        assert "ps:0" in one_line(done)
        assert "fab deploy" in one_line(done)
        assert done.result["status"] == "failed"
