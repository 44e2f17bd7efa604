"""A class at each position, layers in bfloat16, a frozen one, weights: `single`, `sync` and `allreduce` agree."""

from pathlib import Path

import numpy as np
import pytest

import cluster.engine.runtime  # noqa: F401  (its options decide how graphs are optimized)
from cluster.apps.app import App, load
from cluster.apps.networks import Kind, network_of
from cluster.data.examples import batches_of, write_examples
from cluster.inventory import TrainJob
from tests.apps import tagger
from tests.jobs.steps_here import UPDATES, trained
from worker_node.gradient import BatchGradient, GradientOfBatch
from worker_node.weights import LossWeights

import tensorflow as tf  # isort: skip

APP = Path(__file__).parents[1] / "apps" / "tagger.py"


def job_of(mode: str, weights: object = "balanced") -> TrainJob:
    return TrainJob.model_validate(
        {"mode": mode, "batch_size": 20, "micro_batches": 2, "label_smoothing": 0.1, "class_weights": weights}
    )


def test_the_modes_agree(tmp_path: Path) -> None:
    app = load(APP)
    batches, labels = batches_of(app.call("data", tmp_path))
    data = write_examples(batches, tmp_path, name="tags", source="tags", labels=labels)
    network = network_of(app, Kind.of(data), 0)
    expected, losses = trained(network, job_of("single"), data)
    assert len(losses) == UPDATES
    assert not np.array_equal(expected, network.initial(0))
    for mode, parts in (("sync", 2), ("allreduce", 1)):
        found, same_losses = trained(network, job_of(mode), data, parts)
        np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32), err_msg=f"{mode} in {parts}")
        assert same_losses == losses
    alike, _ = trained(network, job_of("single", None), data)
    assert not np.array_equal(alike, expected), "or the weights of the classes did nothing"


def test_a_position_that_augment_moved_weighs_by_the_class_it_brought() -> None:
    random, size = np.random.default_rng(0), 20
    x = random.integers(0, tagger.WORDS, (size, tagger.POSITIONS)).astype(np.int32)
    y = np.digitize(x, [2, 14]).astype(np.int32)
    kind = Kind("classification", 3, (tagger.POSITIONS,), "int32", (tagger.POSITIONS,), "int32")
    table = LossWeights(np.array([9.0, 1.0, 0.1], np.float32))

    def gradient(x: object, y: object, **functions: object) -> BatchGradient:
        app = App("tagger", APP, None, {"model": tagger.model, **functions})  # type: ignore[dict-item]
        network = network_of(app, kind, 0)
        trained, rest = np.split(network.initial(0), [network.layout.trained_size])
        batch = tf.constant(trained), tf.constant(rest), tf.constant(x), tf.constant(y), tf.constant([1, 2])
        return GradientOfBatch(network, job_of("single"), table)(*batch)

    def turned(x: object, y: object, seed: object) -> tuple[object, object]:
        return tf.reverse(x, [1]), tf.reverse(y, [1])

    found, expected = gradient(x, y, augment=turned), gradient(x[:, ::-1], y[:, ::-1])
    assert float(found.loss) == pytest.approx(float(expected.loss), rel=1e-6)
    np.testing.assert_allclose(found.gradient, expected.gradient, atol=1e-6)
