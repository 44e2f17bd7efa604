"""A class at each position, bfloat16, a frozen layer, weights: all exact modes agree."""

from pathlib import Path

import numpy as np
import pytest

from cluster.apps.app import App, load
from cluster.apps.app_network import Kind
from cluster.apps.networks import network_of
from core.data.prepare import batches_of, write_examples
from core.ground.lazy import tf
from tests.cluster.apps import tagger
from tests.cluster.jobs.steps_here import agreed, job_of, trained
from worker_node.gradient import BatchGradient, GradientOfBatch
from worker_node.recordings import LossWeights

APP = Path(tagger.__file__)


def test_the_modes_agree(tmp_path: Path) -> None:
    app = load(APP)
    batches, labels = batches_of(app.call("data", tmp_path))
    data = write_examples(batches, tmp_path, name="tags", source="tags", labels=labels)
    network = network_of(app, Kind.of_dataset(data), 0)
    expected, _ = agreed(network, data, class_weights="balanced")
    alike, _ = trained(network, job_of("single"), data)
    assert not np.array_equal(alike, expected), "or the weights of the classes did nothing"


def test_a_position_that_augment_moved_weighs_by_the_class_it_brought() -> None:
    size = 20
    positions = (tagger.POSITIONS,)
    x = np.random.default_rng(0).integers(0, tagger.WORDS, (size, *positions)).astype(np.int32)
    y = np.digitize(x, [2, 14]).astype(np.int32)
    kind = Kind("classification", 3, positions, "int32", positions, "int32")
    table = LossWeights(np.array([9.0, 1.0, 0.1], np.float32))

    def gradient(x: object, y: object, **functions: object) -> BatchGradient:
        app = App("tagger", APP, None, {"model": tagger.model, **functions})  # type: ignore[dict-item]
        network = network_of(app, kind, 0)
        vector = np.split(network.initial(0), [network.layout.trained_size])
        batch = map(tf.constant, (*vector, x, y, [1, 2]))
        return GradientOfBatch(network, job_of("single"), table)(*batch)

    def turned(x: object, y: object, seed: object) -> tuple[object, object]:
        return tf.reverse(x, [1]), tf.reverse(y, [1])

    found = gradient(x, y, augment=turned)
    expected = gradient(x[:, ::-1], y[:, ::-1])
    assert float(found.loss) == pytest.approx(float(expected.loss), rel=1e-6)
    np.testing.assert_allclose(found.gradient, expected.gradient, atol=1e-6)
