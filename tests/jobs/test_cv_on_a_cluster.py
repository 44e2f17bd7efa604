"""Cross-validation on real processes: the bits of one process, and a killed coordinator's folds are kept."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.cluster import Cluster, Done, cluster_of, own_recordings

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

TRAIN, TEST = 400, 112


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(workers=2) as running:
        # Of a size of their own: clusters of root share one copy of equal windows, and a test here cuts it off.
        own_recordings(running.folder / "mine.npz", train=TRAIN, test=TEST)
        yield running


def settings(cluster: Cluster, mode: str) -> tuple[str, ...]:
    return (
        f"jobs.train.data.source={cluster.folder / 'mine.npz'}", f"jobs.train.mode={mode}", "jobs.train.epochs=2",
        "jobs.train.model={name: spectral, hidden: 8}", "jobs.train.batch_size=20", "jobs.train.micro_batches=2",
        "jobs.cv.folds=groups",
    )  # fmt: skip


def folds(folder: Path | None) -> list[dict[str, Any]]:
    assert folder is not None
    found = json.loads((folder / "cv.json").read_text())["folds"]
    return [{**fold, "seconds": 0} for fold in found]


def ended(done: Done) -> list[dict[str, Any]]:
    assert done.code == 0, done.errors
    assert done.result["trainings"] == {"planned": 4, "done": 4}
    computed = {task["task"]: task["cpu_seconds"] for task in done.result["busy"]["tasks"] if task["computes"]}
    assert list(computed) == (["coordinator:0"] if done.result["mode"] == "single" else ["worker:0", "worker:1"])
    assert all(computed.values()), "each of them used some time"
    return folds(done.folder)


def test_each_fold_learns_from_a_teacher_of_its_own_people(cluster: Cluster) -> None:
    teachers = cluster.job("cv", *settings(cluster, "single"), "jobs.cv.keep_models=true")
    ended(teachers)
    assert teachers.folder is not None
    assert len(list(teachers.folder.glob("models/*/model.json"))) == 4
    taught = f"jobs.train.distill={{run: {teachers.folder.name}, weight: 0.5}}"
    alone = cluster.job("cv", *settings(cluster, "single"), taught)
    assert ended(alone) == ended(cluster.job("cv", *settings(cluster, "sync"), taught))
    people = set(range(4))
    for fold, teacher in zip(ended(alone), alone.result["teachers"], strict=True):
        held_out = {group["group"] for group in fold["groups"]}
        assert set(teacher["trained_on"]) == people - held_out, "nobody whom the fold holds out"
    whole = cluster.job(
        "train", *settings(cluster, "single"), "jobs.train.validation_subjects=0", "jobs.train.epochs=1"
    )
    assert whole.folder is not None
    refused = cluster.job("cv", *settings(cluster, "single"), f"jobs.train.distill={{run: {whole.folder}}}")
    assert refused.code == 2
    assert "has seen group" in refused.errors


def test_workers_need_no_byte_of_the_test_set(cluster: Cluster) -> None:
    """They map the prepared files themselves: here these end where the test set begins."""
    expected = ended(cluster.job("cv", *settings(cluster, "sync")))
    assert ended(cluster.job("cv", *settings(cluster, "sync"), program="tests.jobs.play_cut_cv")) == expected
    left = json.loads((cluster.folder / "cut.json").read_text())
    assert {"windows.f32", "classes.i32", "subjects.i32"} <= set(left)
    assert set(left.values()) == {TRAIN / (TRAIN + TEST)}, "each of them, while the workers computed"


def test_workers_have_the_bits_of_one_process_and_a_killed_coordinator_goes_on(cluster: Cluster) -> None:
    expected = ended(cluster.job("cv", *settings(cluster, "single")))
    assert [len(fold["groups"]) for fold in expected] == [1, 1, 1, 1]
    assert ended(cluster.job("cv", *settings(cluster, "sync"))) == expected
    with cluster.begun("cv", *settings(cluster, "single")) as running:
        running.until("fold 2 of 4")
        os.kill(running.process.pid, signal.SIGKILL)
        killed = running.end()
    kept = folds(killed.folder)
    assert 2 <= len(kept) < 4
    again = cluster.job("cv", *settings(cluster, "single"), resumed=killed.folder)
    assert f"{len(kept)} of 4 trainings done" in again.errors
    assert ended(again) == expected
