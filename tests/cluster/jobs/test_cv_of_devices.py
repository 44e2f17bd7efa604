"""Leave one user or one device out: cross-validation over the groups of an HHAR file."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.synthetic_hhar import write_hhar
from core.data import Dataset, find_source, prepare
from tests.cluster.jobs.cluster import Cluster, cluster_of

pytestmark = pytest.mark.long

STEPS = 32


@pytest.fixture(scope="module")
def idle_cluster() -> Iterator[Cluster]:
    """A cluster whose roles do not run, and recordings of five people with five devices."""
    with cluster_of(workers=1, start=False) as made:
        write_hhar(recordings(made), people=5, devices=5, seconds=1.0)
        yield made


def recordings(cluster: Cluster) -> Path:
    return cluster.folder / "Phones_accelerometer.csv"


def prepared(cluster: Cluster, groups: str) -> Dataset:
    path = recordings(cluster)
    return prepare(
        find_source(str(path), {}, path, path),
        window_steps=STEPS,
        window_stride=STEPS,
        cache=cluster.folder / "of-the-test",
        options={"groups": groups},
    )


@pytest.mark.parametrize(
    ("groups", "named"),
    [
        ("user", ("a", "b", "c", "d", "e")),
        ("device", ("nexus4_1", "nexus4_2", "s3_1", "s3_2", "s3mini_1")),
    ],
)
def test_each_is_left_out_once_and_nobody_else_with_it(
    idle_cluster: Cluster, groups: str, named: tuple[str, ...]
) -> None:
    settings = idle_cluster.settings(
        f"data.source={recordings(idle_cluster)}",
        f"data.groups={groups}",
        f"data.window_steps={STEPS}",
        f"data.window_stride={STEPS}",
        "model={name: spectral, hidden: 8}",
        "mode=single",
        "epochs=1",
        "batch_size=50",
        "jobs.cv.folds=groups",
    )
    done = idle_cluster.job("cv", *settings, code=0)
    folds = json.loads((done.run / "cv.json").read_text())["folds"]
    dataset = prepared(idle_cluster, groups)
    assert (dataset.held_out.by, dataset.held_out.groups) == (groups, named)
    of_row = dataset.subjects()[: dataset.train_windows]
    trained = sorted({int(group) for group in of_row})
    assert len(trained) == 4, "the fifth is the test, which cross-validation does not read"
    assert sorted(fold["groups"][0]["group"] for fold in folds) == trained
    for fold in folds:
        (only,) = fold["groups"]
        assert fold["windows"] == only["windows"] == np.sum(of_row == only["group"]) > 0
        assert fold["train_windows"] == np.sum(of_row != only["group"])
    words = f"groups by {groups}: 0 {named[0]}, 1 {named[1]}"
    assert words in done.errors, "the start names the groups by their numbers"
