"""Leave one user out, leave one device out: cross-validation over the groups of a small HHAR file."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cluster.data import Dataset, find_source, prepare
from cluster.data.synthetic_hhar import write_hhar
from tests.jobs.cluster import Cluster, cluster_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PEOPLE, DEVICES, STEPS = 5, 5, 32


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(workers=1, start=lambda _: False) as made:
        write_hhar(made.folder / "Phones_accelerometer.csv", people=PEOPLE, devices=DEVICES, seconds=1.0)
        yield made


def prepared(cluster: Cluster, groups: str) -> Dataset:
    path = cluster.folder / "Phones_accelerometer.csv"
    source = find_source(str(path), {}, path, path)
    cache = cluster.folder / "of-the-test"
    return prepare(source, window_steps=STEPS, window_stride=STEPS, cache=cache, options={"groups": groups})


@pytest.mark.parametrize("groups", ["user", "device"])
def test_each_is_left_out_once_and_nobody_else_with_it(cluster: Cluster, groups: str) -> None:
    done = cluster.job(
        "cv",
        f"jobs.train.data.source={cluster.folder / 'Phones_accelerometer.csv'}",
        f"jobs.train.data.groups={groups}", f"jobs.train.data.window_steps={STEPS}",
        f"jobs.train.data.window_stride={STEPS}",
        "jobs.train.model={name: spectral, hidden: 8}", "jobs.train.mode=single", "jobs.train.epochs=1",
        "jobs.train.batch_size=50", "jobs.cv.folds=groups",
    )  # fmt: skip
    assert done.code == 0, done.errors
    assert done.folder is not None
    folds: list[dict[str, Any]] = json.loads((done.folder / "cv.json").read_text())["folds"]
    dataset = prepared(cluster, groups)
    assert dataset.held_out.by == groups
    named = dataset.held_out.groups
    assert named == (("a", "b", "c", "d", "e") if groups == "user" else
                     ("nexus4_1", "nexus4_2", "s3_1", "s3_2", "s3mini_1"))  # fmt: skip
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
