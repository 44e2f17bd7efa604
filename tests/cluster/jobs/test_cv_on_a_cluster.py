"""Cross-validation on real processes: the bits of one process, also after a kill."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import Pool
from tests.cluster.jobs.cluster import Cluster, Done, own_recordings
from tests.cluster.jobs.test_cv_here import folds

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

TRAIN = 400
TEST = 112


def cross_validated(cluster: Cluster, mode: str, *words: str, **how: Any) -> Done:
    """Every fold of it, by those who compute in this mode."""
    done = cluster.job("cv", *settings(cluster, mode, *words), code=0, **how)
    assert done.result["trainings"] == {"planned": 4, "done": 4}
    computed = {
        task["task"]: task["cpu_seconds"]
        for task in done.result["busy"]["tasks"]
        if task["computes"]
    }
    who = ["coordinator:0"] if mode == "single" else ["worker:0", "worker:1"]
    assert list(computed) == who
    assert all(computed.values()), "each of them used some time"
    return done


def settings(cluster: Cluster, mode: str, *words: str) -> tuple[str, ...]:
    spectral = "model={name: spectral, hidden: 8}"
    few = ("epochs=2", "slots=2", "jobs.cv.folds=groups")
    return cluster.settings(f"mode={mode}", spectral, *few, *words)


@pytest.fixture(scope="module")
def alone(clusters: Pool) -> Done:
    """All folds by one process."""
    return cross_validated(clusters(2, 1), "single")


@pytest.fixture
def readable(cluster: Cluster) -> Iterator[str]:
    """Recordings whose prepared files every account may read.

    Of others the clusters of root share one copy of equal windows: whoever cut that off would cut
    it off under somebody else's workers.
    """
    cluster.folder.chmod(0o755)
    yield f"data.source={own_recordings(cluster.folder / 'cut.npz', train=TRAIN, test=TEST)}"
    cluster.folder.chmod(0o700)


def test_workers_need_no_byte_of_the_test_set(cluster: Cluster, readable: str) -> None:
    """They map the prepared files themselves: here these end where the test set begins."""
    expected = cross_validated(cluster, "sync", readable)
    cut = cross_validated(cluster, "sync", readable, program="tests.cluster.jobs.play_cut_cv")
    assert folds(cut.run) == folds(expected.run)
    left = json.loads((cluster.folder / "cut.json").read_text())
    names = {Path(path).name for path in left}
    assert {"windows.f32", "classes.i32", "subjects.i32"} <= names
    assert all(Path(path).is_relative_to(cluster.folder) for path in left), "its own files"
    assert set(left.values()) == {TRAIN / (TRAIN + TEST)}, "each, while the workers computed"


def test_workers_have_the_bits_of_one_process_and_a_killed_coordinator_goes_on(
    cluster: Cluster, alone: Done
) -> None:
    expected = folds(alone.run)
    assert [len(fold["groups"]) for fold in expected] == [1, 1, 1, 1]
    assert folds(cross_validated(cluster, "sync").run) == expected
    with cluster.begun("cv", *settings(cluster, "single")) as running:
        running.until("fold 2 of 4")
        killed = running.kill()
    kept = folds(killed)
    assert 2 <= len(kept) < 4
    again = cross_validated(cluster, "single", resumed=killed)
    assert f"{len(kept)} of 4 trainings done" in again.errors
    assert folds(again.run) == expected
