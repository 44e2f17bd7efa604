"""A Keras model as the engine sees it: the same gradient as Keras's own, nothing captured, a model that opens again."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cluster.engine.runtime  # noqa: F401  (its options decide how graphs are optimized)
from cluster.apps.app import App, AppError
from cluster.apps.keras_network import EXPORTED, KerasNetwork
from cluster.apps.networks import Kind, network_of
from cluster.inventory.training import TrainJob
from cluster.models.objective import Classification
from tests.apps.zoo import MODELS, POSITIONS
from worker_node.gradient import GradientOfBatch

import tensorflow as tf  # isort: skip
import keras  # isort: skip

OUTPUTS, BATCH, SEED = 4, 6, 5


def network(name: str) -> KerasNetwork:
    make, shape, dtype = MODELS[name]
    app = App(name, Path(f"{name}.py"), None, {"model": make})
    kind = Kind("classification", OUTPUTS, shape, dtype, POSITIONS.get(name, ()), "int32")
    found = network_of(app, kind, SEED)
    assert isinstance(found, KerasNetwork)
    return found


def batch(name: str) -> tuple[Any, Any]:
    _, shape, dtype = MODELS[name]
    random = np.random.default_rng(1)
    inputs = random.normal(size=(BATCH, *shape)) if dtype == "float32" else random.integers(0, 16, (BATCH, *shape))
    return inputs.astype(dtype), random.integers(0, OUTPUTS, (BATCH, *POSITIONS.get(name, ()))).astype(np.int32)


def gradient_in_keras(found: KerasNetwork, inputs: Any, targets: Any, seed: Any) -> tuple[float, list[Any], Any]:
    """Loss and gradients by variable as Keras computes them, with the seeds that the engine gives its generators."""
    model = found.filled(found.initial(SEED))
    sites = [each for each in model.non_trainable_variables if each.path.endswith("seed_generator_state")]
    for site, variable in enumerate(sites):
        own = tf.random.experimental.stateless_fold_in(seed, site, alg="philox")
        variable.assign(tf.cast(tf.bitcast(own, tf.uint32), variable.dtype))
    with tf.GradientTape() as tape:
        answers = tf.cast(model(inputs, training=True), tf.float32)
        ends_in_softmax = found.objective.probabilities
        entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=not ends_in_softmax)
        loss = entropy(targets, answers) + (tf.add_n(model.losses) if model.losses else 0.0)
    variables = [each.value for each in model.trainable_variables]
    gradients = tape.gradient(loss, variables)
    dense = [tf.convert_to_tensor(gradient).numpy() for gradient in gradients]
    return float(loss), dense, model


@pytest.mark.parametrize("name", MODELS)
def test_a_models_gradient_is_keras_own(name: str) -> None:
    found, (inputs, targets), seed = network(name), batch(name), tf.constant([3, 9])
    job = TrainJob(batch_size=BATCH, micro_batches=1, clip_norm=None, label_smoothing=0.0)
    vector, size = found.initial(SEED), found.layout.trained_size
    gradient_of = GradientOfBatch(found, job)

    @tf.function(autograph=False)
    def ours(trained: Any, statistics: Any) -> Any:
        result = gradient_of(trained, statistics, tf.constant(inputs), tf.constant(targets), seed)
        return result.loss, result.gradient, result.statistics

    concrete = ours.get_concrete_function(tf.TensorSpec([size]), tf.TensorSpec([found.layout.statistics_size]))
    assert not [each for each in concrete.captured_inputs if each.dtype == tf.resource]
    loss, gradient, statistics = concrete(tf.constant(vector[:size]), tf.constant(vector[size:]))

    theirs, gradients, model = gradient_in_keras(found, inputs, targets, seed)
    assert float(loss) == pytest.approx(theirs, abs=1e-5)
    expected = np.concatenate([each.ravel() for each in gradients])
    np.testing.assert_allclose(gradient.numpy(), expected, atol=1e-5)
    moved = vector[size:] + 0.1 * (statistics.numpy() - vector[size:])
    names = {slot.spec.name for slot in found.layout.slots if not slot.spec.trained}
    after = [each.numpy().ravel() for each in model.non_trainable_variables if each.path in names]
    if after:
        np.testing.assert_allclose(moved, np.concatenate(after), atol=1e-5)


class Gated(keras.Model):
    """Its last layer is a sigmoid, its answers are not."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.head = keras.layers.Dense(outputs)
        self.gate = keras.layers.Dense(3, activation="sigmoid")

    def call(self, inputs: Any) -> Any:
        return self.head(self.gate(inputs) * inputs)


def softmax_without_a_layer(shape: tuple[int, ...], outputs: int) -> keras.Model:
    inputs = keras.Input(shape)
    return keras.Model(inputs, keras.ops.softmax(keras.layers.Dense(outputs)(inputs)))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda shape, outputs: Gated(outputs), False),
        (softmax_without_a_layer, True),
        (lambda shape, outputs: keras.Sequential([keras.Input(shape), keras.layers.Dense(outputs, "sigmoid")]), True),
    ],
)
def test_probabilities_are_what_the_graph_ends_in(make: Any, expected: bool) -> None:
    app = App("ends", Path("ends.py"), None, {"model": make})
    found = network_of(app, Kind("classification", OUTPUTS, (3,), "float32", (), "int32"), SEED)
    assert found.objective.probabilities is expected


def test_certainty_of_every_class_is_no_answer() -> None:
    losses = Classification(3, probabilities=True).losses(tf.constant([0]), tf.ones([1, 3]))
    np.testing.assert_allclose(losses, np.log(3.0), rtol=1e-6)


def test_layers_get_masks_of_their_own_and_each_micro_batch_another() -> None:
    found, (inputs, _) = network("images"), batch("images")
    vector = found.initial(SEED)

    def answers(seed: list[int]) -> Any:
        output = found.apply(found.unpack(vector), inputs, training=True, seed=tf.constant(seed))
        return output.logits.numpy()

    np.testing.assert_array_equal(answers([3, 9]), answers([3, 9]))
    assert (answers([3, 9]) != answers([3, 10])).any()


def test_frozen_layers_are_no_parameters_and_keep_their_values() -> None:
    found = network("frozen")
    names = {slot.spec.name for slot in found.layout.slots}
    assert not {name for name in names if name.startswith(("first", "norm"))}
    assert {"first/kernel", "norm/moving_mean"} <= set(found.frozen)
    model = found.filled(found.initial(SEED) + 1.0)
    np.testing.assert_array_equal(model.get_layer("first").kernel, found.frozen["first/kernel"])


def test_weights_start_with_the_seed_and_biases_do_not_decay() -> None:
    found = network("dense")
    np.testing.assert_array_equal(found.initial(SEED), network("dense").initial(SEED))
    assert (found.initial(SEED) != found.initial(SEED + 1)).any()
    trained = {slot.spec.name.rpartition("/")[2]: slot.spec.decayed for slot in found.layout.slots}
    assert trained == {"kernel": True, "bias": False, "gamma": False, "beta": False}


OPENED = """
import sys, keras, numpy as np
model = keras.models.load_model(sys.argv[1])
np.save(sys.argv[3], model.predict(np.load(sys.argv[2]), verbose=0))
"""


@pytest.mark.parametrize("name", ["windows", "frozen"])
def test_the_exported_file_opens_in_plain_keras_and_predicts_the_same(name: str, tmp_path: Path) -> None:
    found, (inputs, _) = network(name), batch(name)
    vector = found.initial(SEED) + np.linspace(0, 0.01, found.layout.size, dtype=np.float32)
    found.export(vector, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [EXPORTED]
    np.save(tmp_path / "x.npy", inputs)
    paths = [str(tmp_path / name) for name in (EXPORTED, "x.npy", "y.npy")]
    subprocess.run([sys.executable, "-c", OPENED, *paths], check=True, cwd=tmp_path, capture_output=True, timeout=100)
    output = found.apply(found.unpack(vector), inputs, training=False, seed=tf.zeros([2], tf.int32))
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), output.logits.numpy(), atol=1e-5)


def test_a_model_whose_classes_cannot_be_written_says_what_they_lack(tmp_path: Path) -> None:
    class Odd(keras.layers.Layer):
        def __init__(self, size: object) -> None:
            super().__init__()
            self.size = size

        def call(self, inputs: Any) -> Any:
            return inputs

    def model(input_shape: tuple[int, ...], outputs: int) -> Any:
        return keras.Sequential([keras.Input(input_shape), Odd(object()), keras.layers.Dense(outputs)])

    app = App("odd", Path("odd.py"), None, {"model": model})
    found = network_of(app, Kind("classification", OUTPUTS, (3,), "float32", (), "int32"), SEED)
    with pytest.raises(AppError, match=r"odd\.py: model\(\): cannot be written as model\.keras"):
        found.export(found.initial(SEED), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("rows", "notes"), [(1000, 0), (100_000, 1)])
def test_a_large_embedding_is_said_to_travel_whole(rows: int, notes: int) -> None:
    def model(input_shape: tuple[int, ...], outputs: int) -> Any:
        table = keras.layers.Embedding(rows, 32, name="words")
        return keras.Sequential([keras.Input(input_shape), table, keras.layers.Flatten(), keras.layers.Dense(outputs)])

    app = App("words", Path("words.py"), None, {"model": model})
    found = network_of(app, Kind("classification", OUTPUTS, (3,), "int32", (), "int32"), SEED).notes()
    assert len(found) == notes
    assert all("embedding words" in note and "12 MiB" in note for note in found)
