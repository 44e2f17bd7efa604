"""Real processes, asked over HTTP while a training runs: complete, and without a complaint of promtool."""

import subprocess
import time
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cluster.inventory.task import ROLE_NAMES, RoleName
from cluster.metrics.catalogue import exported_by
from tests.habits import needs
from tests.jobs.cluster import HANG_SECONDS, SMALL, Cluster, cluster_of, own_recordings

FORMATS = ("text/plain", "application/openmetrics-text; version=1.0.0")
AT_THE_END = ("pscluster_train_loss", ("coordinator", "test", "0"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(workers=2) as running:
        own_recordings(running.folder / "mine.npz")
        yield running


def read(cluster: Cluster, role: RoleName) -> str:
    with urllib.request.urlopen(
        f"http://{cluster.inventory.task(role, 0).metrics_address}/metrics", timeout=HANG_SECONDS
    ) as answer:
        return str(answer.read().decode())


def complaints(text: str) -> str:
    """What promtool has to say."""
    checked = subprocess.run(
        [needs.tool("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, timeout=HANG_SECONDS
    )
    return checked.stdout + checked.stderr + ("" if checked.returncode == 0 else f"status {checked.returncode}")


def families(text: str) -> set[str]:
    return {family.name for family in text_string_to_metric_families(text) if family.samples}


@pytest.mark.long
def test_all_of_a_training_and_its_last_figures(cluster: Cluster) -> None:
    settings = (
        f"jobs.train.data.source={cluster.folder / 'mine.npz'}", *SMALL, "jobs.train.epochs=12",
        "jobs.train.validation_subjects=1", "jobs.train.checkpoint.every_seconds=1",
    )  # fmt: skip
    with cluster.begun("train", *settings) as job:
        cluster.metrics_when(job, "pscluster_train_checkpoint_bytes", 1)
        cluster.metrics_when(job, "pscluster_train_epoch", 1)
        texts = {role: read(cluster, role) for role in ROLE_NAMES}
        # This may be the last reading already: the job goes as soon as that one is done.
        last = cluster.metrics_when(job, "pscluster_train_epoch", 12)
        end = time.monotonic() + HANG_SECONDS
        while ("coordinator", "ended", "0") not in {
            labels for labels, value in last.get("pscluster_job_stage", {}).items() if value
        }:
            assert time.monotonic() < end, "the job's last figures never came"
            last = cluster.metrics() or last
        done = job.end()
    assert done.code == 0, done.errors
    assert AT_THE_END[1] in last[AT_THE_END[0]]

    for role, text in texts.items():
        assert complaints(text) == "", role
        wanted = exported_by("every process", *(("every job", "training") if role == "coordinator" else ()))
        known = {entry.family for entry in wanted}
        always = {entry.family for entry in wanted if not entry.where}
        assert always <= families(text) <= known, role
    assert done.folder is not None
    assert f'run="{done.folder.name}"' in texts["coordinator"]
