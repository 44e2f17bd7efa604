"""The examples end with the same bits in `single` and `sync`, also after a killed worker."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.jobs.cluster import Cluster, Done, cluster_of, own_recordings

pytestmark = pytest.mark.long

PROJECT = Path(__file__).resolve().parents[3]
SETTINGS = {
    "digits": ("jobs.train.batch_size=24", "jobs.train.epochs=2"),
    "tabular": ("jobs.train.batch_size=100", "jobs.train.epochs=1"),
    "transformer": ("jobs.train.batch_size=20", "jobs.train.epochs=6"),
    "characters": ("jobs.train.batch_size=32", "jobs.train.epochs=2"),
    "bare": ("jobs.train.batch_size=64", "jobs.train.epochs=2"),
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with cluster_of(workers=4, servers=1) as running:
        own_recordings(running.folder / "mine.npz")
        shutil.copytree(
            PROJECT / "examples", running.folder / "examples"
        )  # a person may edit the others meanwhile
        pages = running.folder / "pages"
        pages.mkdir()
        for number in range(2):
            words = (
                f"Page {number} names its nodes: rpi0{number}, and says which role each of them"
                " has.\n"
            )
            (pages / f"{number}.md").write_text(words * 60)
        yield running


def settings(cluster: Cluster, name: str, mode: str) -> tuple[str, ...]:
    data = {"transformer": "mine.npz", "characters": "pages"}.get(name)
    source = () if data is None else (f"jobs.train.data.source={cluster.folder / data}",)
    return (
        f"jobs.train.app={cluster.folder / 'examples' / name}",
        *source,
        *SETTINGS[name],
        f"jobs.train.mode={mode}",
        "jobs.train.slots=4",
        "jobs.train.validation_subjects=0",
    )


def bits(done: Done) -> str:
    assert done.code == 0, done.errors
    updates = done.result["updates"]
    assert updates["scheduled"] == updates["applied"] > 60
    return str(done.result["parameters_sha256"])


@pytest.mark.parametrize("name", SETTINGS)
def test_equal_bits(cluster: Cluster, name: str) -> None:
    alone = bits(cluster.job("train", *settings(cluster, name, "single")))
    for workers in (1, 2):
        assert (
            bits(cluster.part(workers).job("train", *settings(cluster, name, "sync"))) == alone
        ), workers
    with cluster.begun("train", *settings(cluster, name, "sync")) as job:
        cluster.metrics_when(job, "pscluster_train_steps_total", 5)
        cluster.kill("worker:3")
        done = job.end()
    assert "worker:3 left" in done.log
    assert bits(done) == alone
