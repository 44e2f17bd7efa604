"""What a recipe may say, end to end with one app: in `sync` on roles, and in `single`.

The app has a class at each position, a frozen layer, layers in bfloat16 and weights of its
examples; the job weighs the classes, stops early and takes the best epoch of the validation.
"""

from collections.abc import Iterator

import pytest

from tests.cluster.apps import tagger
from tests.cluster.jobs.cluster import Cluster, cluster_of

pytestmark = pytest.mark.long

PATIENCE = 3
SEED = 2
SETTINGS = (
    f"jobs.train.app={tagger.__file__}",
    "jobs.train.batch_size=40",
    "jobs.train.slots=4",
    f"jobs.train.seed={SEED}",
    "jobs.train.class_weights=balanced",
    "jobs.train.validation_subjects=[0, 1]",
    "jobs.train.refit=false",
    "jobs.train.schedule={name: constant}",
    "jobs.train.optimizer.learning_rate=0.02",
)
EARLY = (f"jobs.train.early_stopping={{patience: {PATIENCE}}}", "jobs.train.epochs=60")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with cluster_of(workers=2, servers=1) as running:
        yield running


def test_it_stops_early_and_restores_the_epoch_that_validation_chose_to_the_bits_of_one_process(
    cluster: Cluster,
) -> None:
    stopped = cluster.job("train", *SETTINGS, *EARLY, "jobs.train.mode=sync", code=0)
    result = stopped.result
    best = result["selected"]["epoch"]
    assert best > 1
    assert result["stopped_early"] == {"epoch": best + PATIENCE, "patience": PATIENCE}
    assert stopped.best["epoch"] == best
    words = (f"jobs.train.epochs={best}", "jobs.train.mode=single")
    until = cluster.job("train", *SETTINGS, *words, code=0)
    for entry in ("parameters_sha256", "selected", "final", "confusion"):
        assert until.result[entry] == result[entry], entry
