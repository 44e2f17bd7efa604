"""Roles prove the library before they compute."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from core.server.sockets import answers
from tests.cluster.jobs.cluster import HANG_SECONDS, PROJECT, Cluster, cluster_of
from tests.deploy.playing import eventually

WITHOUT = (
    "import sys; from pathlib import Path; import kernels.place as place;"
    " place.path = lambda: Path('/nowhere/_kernels.so');"
    " from core.server.role import main; sys.exit(main({role!r}, {words!r}))"
)
"""A role of an installation whose library is gone."""
ONE_EPOCH = ("mode=sync", "epochs=1", "validation_subjects=0")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with cluster_of(2, 1) as made:
        yield made


def without_library(cluster: Cluster, name: str) -> None:
    """Start the role again, in an installation that has no library."""
    cluster.kill(name)
    task = next(task for task in cluster.inventory.tasks() if task.name == name)
    # What --inventory becomes is another process, which would find the library again.
    words = ["--task", str(task.index), "--host", task.host, "--port", str(task.port)]
    words += ["--metrics-port", str(task.metrics_port), "--peers", "2", "--die-with-parent"]
    program = WITHOUT.format(role=task.role, words=words)
    with cluster.log(name).open("ab") as stream:
        cluster.processes[name] = subprocess.Popen(
            [sys.executable, "-c", program], cwd=PROJECT, stderr=stream
        )
    eventually(lambda: answers(task.host, task.port, 1.0), f"the start of {name}", HANG_SECONDS)


def test_a_worker_without_the_library_is_kept_out_by_name(cluster: Cluster) -> None:
    whole = cluster.train(*ONE_EPOCH)
    without_library(cluster, "worker:1")
    done = cluster.train(*ONE_EPOCH)
    assert "/nowhere/_kernels.so cannot be loaded" in cluster.log("worker:1").read_text()
    assert "worker:1" in done.log
    assert "cannot load the library of kernels" in done.log
    assert "jobs.train.arithmetic=tensorflow" in done.log
    assert done.result["parameters_sha256"] == whole.result["parameters_sha256"]
    other = cluster.train(*ONE_EPOCH, "arithmetic=tensorflow")
    assert other.result["arithmetic"]["name"] == "tensorflow"
    assert "cannot load" not in other.log

    without_library(cluster, "worker:0")
    refused = cluster.train(*ONE_EPOCH, code=2)
    lines = refused.errors.splitlines()[-2:]
    assert [line[:20] for line in lines] == ["worker:0: it cannot ", "worker:1: it cannot "]
