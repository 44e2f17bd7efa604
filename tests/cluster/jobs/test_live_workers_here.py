"""A push is divided by the number of workers in the cluster, whatever the inventory names."""

from pathlib import Path

import numpy as np
import pytest

from core.consistency import Grant
from core.inventory import TrainJob
from core.parameters import Vector
from tests.cluster.jobs.steps_here import built_in, job_of, placed, recordings, update_of


def moved(folder: Path, job: TrainJob, live: int) -> list[Vector]:
    """By how much one push moves the trained parameters, and the statistics."""
    network = built_in("thesis", hidden=8, batch_norm=True)
    mode, stretch = placed(network, job, recordings(folder), live=live)
    before = mode.shards.read()
    item = mode.item(Grant(0, 0, job.pieces), [update_of(0, job)], stretch)
    item.function.answer(*item.arguments)
    return np.split(mode.shards.read() - before, [network.layout.trained_size])


@pytest.mark.parametrize("live", [2, 8])
def test_local_moves_parameters_and_statistics_by_a_live_worker_s_share(
    tmp_path: Path, live: int
) -> None:
    job = job_of("local", slots=1)
    alone = moved(tmp_path, job, 1)
    shared = moved(tmp_path, job, live)
    for whole, part in zip(alone, shared, strict=True):
        assert np.abs(whole).max() > 0.0
        np.testing.assert_allclose(part * live, whole, rtol=1e-3, atol=1e-6)


def test_topk_cuts_a_gradient_by_the_root_of_the_live_workers(tmp_path: Path) -> None:
    codec = {"name": "topk", "density": 0.5, "momentum": 0.0, "clip_norm": 1e-3}
    sgd = {"name": "sgd", "momentum": 0.0}
    job = job_of("async", slots=1, optimizer=sgd, codec=codec)
    alone, shared = (np.linalg.norm(moved(tmp_path, job, live)[0]) for live in (1, 4))
    assert alone > 0.0
    assert alone / shared == pytest.approx(2.0, rel=0.02)
