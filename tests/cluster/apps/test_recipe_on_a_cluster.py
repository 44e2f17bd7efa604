"""What a recipe may say, end to end with one app: in `sync` on roles, and in `single`.

The app has a class at each position, a frozen layer, layers in bfloat16 and weights of its
examples; the job weighs the classes, stops early and takes the best epoch of the validation.
"""

from collections.abc import Iterator

import keras
import numpy as np
import pytest

from tests.cluster.apps import tagger
from tests.cluster.jobs.cluster import Cluster, Done, cluster_of

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


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(workers=2, servers=1) as running:
        yield running


@pytest.fixture(scope="module")
def stopped(cluster: Cluster) -> Done:
    return finished(cluster.job("train", *SETTINGS, *EARLY, "jobs.train.mode=sync"))


def finished(done: Done) -> Done:
    assert done.code == 0, done.errors
    assert "Traceback" not in done.log
    return done


def test_it_learns_from_the_examples_that_weigh_and_counts_positions(stopped: Done) -> None:
    result = stopped.result
    assert result["final"]["accuracy"] > 0.9, "half of the training examples are dice, of weight 0"
    confusion = np.array(result["confusion"])
    assert confusion.sum() == 120 * tagger.POSITIONS
    assert np.trace(confusion) / confusion.sum() == pytest.approx(result["final"]["accuracy"])


def test_a_frozen_layer_keeps_its_weights_and_the_other_is_stored_as_float32(stopped: Done) -> None:
    assert stopped.folder is not None
    trained = keras.models.load_model(stopped.folder / "model" / "model.keras")
    keras.utils.set_random_seed(SEED)
    fresh = tagger.model((tagger.POSITIONS,), len(tagger.LABELS))
    np.testing.assert_array_equal(
        trained.get_layer("table").embeddings, fresh.get_layer("table").embeddings
    )
    assert stopped.result["model"]["parameters"] == sum(
        int(np.prod(each.shape)) for each in fresh.trainable_variables
    )
    assert {each.dtype for each in trained.trainable_variables} == {"float32"}
    assert {layer.compute_dtype for layer in trained.layers} == {"float32", "bfloat16"}


def test_it_stops_early_and_restores_the_epoch_that_validation_chose_to_the_bits_of_one_process(
    cluster: Cluster, stopped: Done
) -> None:
    result = stopped.result
    best = stopped.result["selected"]["epoch"]
    assert best > 1
    assert result["stopped_early"] == {"epoch": best + PATIENCE, "patience": PATIENCE}
    scores = [event["validation"]["accuracy"] for event in stopped.epochs]
    assert scores.index(max(scores)) == best - 1
    until = finished(
        cluster.job("train", *SETTINGS, f"jobs.train.epochs={best}", "jobs.train.mode=single")
    )
    for entry in ("parameters_sha256", "selected", "final", "confusion"):
        assert until.result[entry] == result[entry], entry
