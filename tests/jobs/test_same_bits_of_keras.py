"""A Keras model ends with the same bits in `single`, `sync` and `allreduce`, on the cluster's own roles."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.cluster import Cluster, cluster_of, own_recordings

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

UPDATES, PARAMETERS, STATISTICS = 10, 5988, 64


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(workers=2, servers=2) as running:
        own_recordings(running.folder / "mine.npz", steps=16, train=200, test=20)
        yield running


def digest(cluster: Cluster, mode: str) -> str:
    """Of the parameters after one epoch."""
    settings = (
        f"jobs.train.data.source={cluster.folder / 'mine.npz'}", "jobs.train.batch_size=20", "jobs.train.epochs=1",
        "jobs.train.micro_batches=2", "jobs.train.validation_subjects=0", f"jobs.train.mode={mode}",
    )  # fmt: skip
    app = Path(__file__).parents[1] / "apps" / "recurrent.py"
    done = cluster.job("train", *settings, f"jobs.train.app={app}")
    assert done.code == 0, done.errors
    assert done.result["updates"]["applied"] == UPDATES
    assert (done.result["model"]["parameters"], done.result["model"]["statistics"]) == (PARAMETERS, STATISTICS)
    return str(done.result["parameters_sha256"])


def test_bits_of_a_recurrent_model_with_batch_norm_and_dropout(cluster: Cluster) -> None:
    alone = digest(cluster, "single")
    for mode, workers, servers in (("sync", 2, 2), ("allreduce", 2, 1)):
        assert digest(cluster.part(workers, servers), mode) == alone, f"{mode}, {workers} workers, {servers} servers"
