"""A Keras model ends with the same bits in all exact modes, on the cluster's own roles."""

from pathlib import Path

import pytest

from tests.cluster.jobs.cluster import Cluster, own_recordings

pytestmark = pytest.mark.long

APP = Path(__file__).parents[1] / "apps" / "recurrent.py"


def digest(cluster: Cluster, mode: str, data: Path) -> str:
    """Of the parameters after one epoch."""
    few = ("batch_size=20", "epochs=1", "slots=2", "validation_subjects=0")
    words = (f"app={APP}", f"data.source={data}", f"mode={mode}", *few)
    done = cluster.job("train", *(f"jobs.train.{word}" for word in words), code=0)
    assert done.updates == 10
    model = done.result["model"]
    assert (model["parameters"], model["statistics"]) == (7460, 64)
    return str(done.result["parameters_sha256"])


def test_bits_of_a_recurrent_model_with_batch_norm_and_dropout(two_servers: Cluster) -> None:
    data = own_recordings(two_servers.folder / "small.npz", steps=16, train=200, test=20)
    alone = digest(two_servers, "single", data)
    for mode, servers in (("sync", 2), ("allreduce", 1)):
        assert digest(two_servers.part(2, servers), mode, data) == alone, mode
