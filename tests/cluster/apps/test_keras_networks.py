"""A Keras model as the engine sees it: Keras's own gradient, nothing captured, opened again."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.apps.app import AppError
from cluster.apps.keras_network import EXPORTED, KerasNetwork
from core.ground.lazy import keras, tf
from core.inventory.training import TrainJob
from core.models.tasks import Classification
from tests.cluster.apps.kit import OUTPUTS, SEED, classes, keras_network, layered
from tests.cluster.apps.looping import LOOPING
from tests.cluster.apps.zoo import MODELS as ZOO
from tests.cluster.apps.zoo import examples, kind_of
from tests.lazy import layers, own_keras
from tests.ran import python
from worker_node.gradient import GradientOfBatch

BATCH = 6
MODELS = ZOO | LOOPING


def network(name: str) -> KerasNetwork:
    return keras_network(MODELS[name][0], kind_of(MODELS[name]))


def batch(name: str) -> tuple[Any, Any]:
    kind = kind_of(MODELS[name])
    random = np.random.default_rng(1)
    inputs = examples(kind, random, BATCH)
    return inputs, random.integers(0, OUTPUTS, BATCH).astype(np.int32)


def answers(
    found: KerasNetwork, inputs: Any, seed: Any, *, training: bool = True, vector: Any = None
) -> Any:
    """What the network answers, with its initial values if no others are given."""
    if vector is None:
        vector = found.initial(SEED)
    return found.apply(
        found.unpack(vector), inputs, training=training, seed=tf.constant(seed)
    ).logits.numpy()


def gradient_in_keras(
    found: KerasNetwork, inputs: Any, targets: Any, seed: Any
) -> tuple[float, Any, Any]:
    """Return loss and gradient as Keras computes them, with the engine's seeds; the model."""
    model = found.filled(found.initial(SEED))
    variables = model.non_trainable_variables
    sites = [each for each in variables if each.path.endswith("seed_generator_state")]
    for site, variable in enumerate(sites):
        own = tf.random.experimental.stateless_fold_in(seed, site, alg="philox")
        variable.assign(tf.cast(tf.bitcast(own, tf.uint32), variable.dtype))
    entropy = keras.losses.SparseCategoricalCrossentropy(
        from_logits=not found.objective.probabilities
    )
    with tf.GradientTape() as tape:
        answered = tf.cast(model(inputs, training=True), tf.float32)
        loss = entropy(targets, answered) + sum(model.losses)
    gradients = tape.gradient(loss, [each.value for each in model.trainable_variables])
    return (
        float(loss),
        np.concatenate([np.ravel(tf.convert_to_tensor(g)) for g in gradients]),
        model,
    )


@pytest.mark.filterwarnings("ignore:`build..` was called on layer")
@pytest.mark.parametrize("name", MODELS)
def test_a_models_gradient_is_keras_own(name: str) -> None:
    found, (inputs, targets), seed = network(name), batch(name), tf.constant([3, 9])
    job = TrainJob(batch_size=BATCH, slots=1, clip_norm=None, label_smoothing=0.0)
    trained, statistics = np.split(found.initial(SEED), [found.layout.trained_size])
    gradient_of = GradientOfBatch(found, job)

    @tf.function(autograph=False)
    def ours(trained: Any, statistics: Any) -> Any:
        result = gradient_of(trained, statistics, tf.constant(inputs), tf.constant(targets), seed)
        return result.loss, result.gradient, result.statistics

    concrete = ours.get_concrete_function(
        tf.TensorSpec([len(trained)]), tf.TensorSpec([len(statistics)])
    )
    assert not [each for each in concrete.captured_inputs if each.dtype == tf.resource]
    loss, gradient, moved = concrete(tf.constant(trained), tf.constant(statistics))

    theirs, expected, model = gradient_in_keras(found, inputs, targets, seed)
    assert float(loss) == pytest.approx(theirs, abs=1e-5)
    np.testing.assert_allclose(gradient, expected, atol=1e-5)
    # Keras numbers the layers of a second model on, so that the last part of a name is compared.
    names = {slot.spec.name.split("/")[-1] for slot in found.layout.slots if not slot.spec.trained}
    rest = model.non_trainable_variables
    after = [np.ravel(each) for each in rest if each.path.split("/")[-1] in names]
    np.testing.assert_allclose(
        statistics + 0.1 * (moved - statistics), np.concatenate([[], *after]), atol=1e-5
    )


def softmax_without_a_layer(shape: tuple[int, ...], outputs: int) -> Any:
    inputs = keras.Input(shape)
    return keras.Model(inputs, keras.ops.softmax(layers.Dense(outputs)(inputs)))


def sigmoid(shape: tuple[int, ...], outputs: int) -> Any:
    return keras.Sequential([keras.Input(shape), layers.Dense(outputs, "sigmoid")])


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda shape, outputs: own_keras.GatedInside(outputs), False),
        (softmax_without_a_layer, True),
        (sigmoid, True),
    ],
)
def test_probabilities_are_what_the_graph_ends_in(make: Any, expected: bool) -> None:
    assert keras_network(make).objective.probabilities is expected


def test_certainty_of_every_class_is_no_answer() -> None:
    losses = Classification(3, probabilities=True).losses(tf.constant([0]), tf.ones([1, 3]))
    np.testing.assert_allclose(losses, np.log(3.0), rtol=1e-6)


def test_layers_get_masks_of_their_own_and_each_slot_another() -> None:
    found, (inputs, _) = network("images"), batch("images")
    np.testing.assert_array_equal(*(answers(found, inputs, [3, 9]) for _ in range(2)))
    assert (answers(found, inputs, [3, 9]) != answers(found, inputs, [3, 10])).any()


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
import keras, numpy as np
for name in ("text", "frozen"):
    model = keras.models.load_model(f"{name}/model.keras")
    np.save(f"{name}/y.npy", model.predict(np.load(f"{name}/x.npy"), verbose=0))
"""


def test_the_exported_files_open_in_plain_keras_and_predict_the_same(tmp_path: Path) -> None:
    expected = {}
    for name in ("text", "frozen"):
        found, (inputs, _) = network(name), batch(name)
        vector = found.initial(SEED) + np.linspace(0, 0.01, found.layout.size, dtype=np.float32)
        folder = tmp_path / name
        folder.mkdir()
        found.export(vector, folder)
        assert [path.name for path in folder.iterdir()] == [EXPORTED] == ["model.keras"]
        np.save(folder / "x.npy", inputs)
        expected[name] = answers(found, inputs, [0, 0], training=False, vector=vector)
    python("-c", OPENED, folder=tmp_path)
    for name, answered in expected.items():
        np.testing.assert_allclose(np.load(tmp_path / name / "y.npy"), answered, atol=1e-5)


def test_a_model_whose_classes_cannot_be_written_says_what_they_lack(tmp_path: Path) -> None:
    class Odd(layers.Layer):
        def __init__(self, size: object) -> None:
            super().__init__()
            self.size = size

        def call(self, inputs: Any) -> Any:
            return inputs

    found = layered(lambda: [Odd(object())])
    with pytest.raises(AppError, match=r"own\.py: model\(\): cannot be written as model\.keras"):
        found.export(found.initial(SEED), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("rows", "notes"), [(1000, 0), (100_000, 1)])
def test_a_large_embedding_is_said_to_travel_whole(rows: int, notes: int) -> None:
    found = layered(
        lambda: [layers.Embedding(rows, 32, name="words"), layers.Flatten()],
        classes((3,), "int32"),
    ).notes()
    assert len(found) == notes
    assert all("embedding words" in note and "12 MiB" in note for note in found)


def test_a_layer_outside_of_the_model_is_a_constant_and_is_said() -> None:
    def outside() -> list[Any]:
        table = layers.Embedding(200, 3, name="words")(np.arange(200))
        return [layers.Lambda(lambda x: x @ keras.ops.transpose(table))]

    found = layered(outside)
    [note] = found.notes()
    assert note.startswith("layer words computes while model() runs and is no part of the model")
    x = tf.ones([2, 3])
    expected = found.filled(found.initial(SEED))(x)
    np.testing.assert_allclose(answers(found, x, [0, 0], training=False), expected, rtol=1e-5)


def test_random_numbers_without_a_seed_get_one_that_depends_on_the_slot() -> None:
    class Noise(layers.Layer):
        def call(self, inputs: Any) -> Any:
            return inputs + keras.random.normal((3,)) + keras.random.normal((3,))

    found = layered(lambda: [Noise()])
    answered = tf.function(
        lambda seed: found.apply(
            found.unpack(found.initial(SEED)), tf.ones([2, 3]), training=True, seed=seed
        ).logits,
        autograph=False,
    )
    once = answered(tf.constant([3, 9]))
    np.testing.assert_array_equal(once, answered(tf.constant([3, 9])))
    assert not np.array_equal(once, answered(tf.constant([3, 10])))


def scaled(how: str) -> KerasNetwork:
    # TensorFlow's silu has a gradient of its own.
    return layered(lambda: [own_keras.Scaled(how), layers.Dense(4, activation="silu")])


@pytest.mark.parametrize("how", ["unused", "stopped"])
def test_weights_that_no_gradient_reaches_are_said(how: str) -> None:
    [note] = scaled(how).notes()
    assert re.match(r"no gradient reaches \S+/kernel, \S+/bias: .* as they begin", note)


def test_weights_whose_gradient_would_be_lost_are_refused() -> None:
    with pytest.raises(
        AppError,
        match=r"weight \S+/kernel gets no gradient: .*tf\.recompute_grad.*: call it without",
    ):
        scaled("recomputed")
