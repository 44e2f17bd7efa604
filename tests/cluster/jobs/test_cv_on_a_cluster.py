"""Cross-validation on real processes: the bits of one process."""

import pytest

from tests.cluster.jobs.cluster import Cluster, Done
from tests.cluster.jobs.test_cv_here import folds

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def cross_validated(cluster: Cluster, mode: str) -> Done:
    """Every fold of it, by those who compute in this mode."""
    done = cluster.job("cv", *settings(cluster, mode), code=0)
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


def settings(cluster: Cluster, mode: str) -> tuple[str, ...]:
    spectral = "model={name: spectral, hidden: 8}"
    few = ("epochs=2", "slots=2", "jobs.cv.folds=groups")
    return cluster.settings(f"mode={mode}", spectral, *few)


def test_workers_have_the_bits_of_one_process(
    cluster: Cluster,
) -> None:
    expected = folds(cross_validated(cluster, "single").run)
    assert [len(fold["groups"]) for fold in expected] == [1, 1, 1, 1]
    assert folds(cross_validated(cluster, "sync").run) == expected
