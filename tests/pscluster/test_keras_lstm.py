"""Layers of `pscluster.keras` beside Keras's: results, gradients, bits, weights, files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pscluster
from core.ground.lazy import keras, tf
from core.models.operations import portable_operations
from kernels.place import KIND, THREADS
from tests.kernels.networks import kinds_of_this_processor
from tests.ran import python
from tests.tables import table

FEATURES = 7
NARROW = 4
WIDE = 48


def drawn(*shape: int, seed: int = 0) -> Any:
    return tf.constant(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def pair(
    units: int, *, both_ways: bool = False, batch: int | None = None, **settings: Any
) -> list[Any]:
    """Keras's layer and ours, with the same weights."""
    layers = [made(units, **settings) for made in (keras.layers.LSTM, pscluster.keras.LSTM)]
    if both_ways:
        layers = [keras.layers.Bidirectional(layer) for layer in layers]
    for layer in layers:
        layer.build((batch, None, FEATURES))
    layers[1].set_weights(layers[0].get_weights())
    return layers


def traced(
    layer: Any, windows: Any, *, graph: bool = True, signature: Any = None, **call: Any
) -> list[Any]:
    """Results, then the gradients by inputs, weights and states of a function of all results."""
    states = call.get("initial_state") or []

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, *states])
            results = tf.nest.flatten(layer(x, **call))
            loss = tf.add_n([tf.reduce_sum(tf.sin(1.3 * result)) for result in results])
        variables = [variable.value for variable in layer.trainable_variables]
        return [*results, *tape.gradient(loss, [x, *variables, *states])]

    if graph:
        run = tf.function(step, autograph=False, input_signature=signature)
    else:
        run = step
    return [np.asarray(tensor) for tensor in run(windows)]


SEQUENCES: dict[str, Any] = {"return_sequences": True}
SETTINGS: dict[str, dict[str, Any]] = table("pscluster/rows", "layers")
EACH = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


def same_as_keras(units: int, windows: Any, settings: dict[str, Any], **call: Any) -> None:
    """Fails unless results and gradients are those of Keras's layer."""
    close(*(traced(layer, windows, **call) for layer in pair(units, **settings)))


def close(ones: list[Any], others: list[Any], *, apart: float = 1e-5) -> None:
    for one, other in zip(ones, others, strict=True):
        atol = apart * max(1.0, float(np.abs(one).max()))
        np.testing.assert_allclose(other, one, rtol=0, atol=atol)


@EACH
def test_results_and_gradients_are_those_of_keras(settings: dict[str, Any]) -> None:
    same_as_keras(NARROW, drawn(5, 5, FEATURES), settings)


def test_a_first_state_and_unknown_steps_and_batch() -> None:
    states = [drawn(3, NARROW, seed=seed) for seed in (1, 2)]
    signature = [tf.TensorSpec([None, None, FEATURES])]
    windows = drawn(3, 9, FEATURES)
    same_as_keras(NARROW, windows, SEQUENCES, initial_state=states, signature=signature)
    same_as_keras(NARROW, windows, SEQUENCES, signature=signature)


MASKS = table("pscluster/rows", "masks")


@EACH
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_a_mask(mask: list[list[int]], settings: dict[str, Any]) -> None:
    same_as_keras(NARROW, drawn(3, 6, FEATURES), settings, mask=tf.constant(mask) > 0)


def test_masked_outputs_that_are_zero() -> None:
    settings = {**SEQUENCES, "zero_output_for_mask": True}
    mask = tf.constant(MASKS["holes"]) > 0
    same_as_keras(NARROW, drawn(3, 6, FEATURES), settings, mask=mask)


DENSE = table("pscluster/rows", "dense")


def dense_pair(shape: tuple[int, ...], **settings: Any) -> list[Any]:
    layers = [made(11, **settings) for made in (keras.layers.Dense, pscluster.keras.Dense)]
    for layer in layers:
        layer.build((None, *shape[1:]))
    layers[1].set_weights(layers[0].get_weights())
    return layers


@pytest.mark.parametrize(("settings", "sizes"), DENSE.values(), ids=DENSE)
def test_dense(settings: dict[str, Any], sizes: list[int]) -> None:
    shape = (*sizes, FEATURES)
    windows = drawn(*shape)
    unknown = [tf.TensorSpec([*[None] * (len(shape) - 1), FEATURES])]
    layers = dense_pair(shape, **settings)
    for signature in (None, unknown):
        close(*(traced(layer, windows, signature=signature) for layer in layers))


MADE = {
    "lstm": lambda: pair(WIDE, **SEQUENCES)[1],
    "dense": lambda: dense_pair((40, FEATURES), activation="relu")[1],
}


@pytest.mark.parametrize("kind", MADE)
def test_bits_are_those_of_any_processor_and_threads(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = MADE[kind]()
    windows = drawn(70, 40, FEATURES)
    found = set()
    ways = [(name, threads) for name in kinds_of_this_processor() for threads in ("1", "3")]
    for training in (True, False):  # a gradient outside training computes the values again
        for name, threads in ways:
            monkeypatch.setenv(KIND, name)
            monkeypatch.setenv(THREADS, threads)
            parts = traced(layer, windows, training=training)
            found.add(b"".join(part.tobytes() for part in parts))
    assert len(ways) >= 2
    assert len(found) == 1


def test_a_batch_of_nothing() -> None:
    empty = tf.zeros([0, 6, FEATURES])
    signature = [tf.TensorSpec([None, 6, FEATURES])]
    found = traced(pair(NARROW)[1], empty, signature=signature, training=True)
    assert [each.shape for each in found[:2]] == [(0, NARROW), empty.shape]
    assert not any(each.any() for each in found)


def operations_of(layer: Any) -> set[str]:
    spec = tf.TensorSpec([2, 6, FEATURES])
    graph = tf.function(layer, autograph=False).get_concrete_function(spec).graph
    return {operation.type for operation in graph.get_operations()}


@pytest.mark.parametrize("kind", MADE)
def test_an_export_has_tensorflow_s_operations(kind: str) -> None:
    layer = MADE[kind]()
    assert "PsclusterLayer" in operations_of(layer)
    with portable_operations():
        assert "PsclusterLayer" not in operations_of(layer)


@pytest.mark.parametrize("kind", MADE)
def test_a_machine_that_cannot_load_the_library(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise tf.errors.NotFoundError(None, None, "wrong libc")

    monkeypatch.setattr("kernels.library.operations", missing)
    assert "PsclusterLayer" not in operations_of(MADE[kind]())


def test_eagerly() -> None:
    same_as_keras(WIDE, drawn(3, 9, FEATURES), SEQUENCES, graph=False)


DROPOUT = table("pscluster/rows", "dropout")


@pytest.mark.parametrize("settings", DROPOUT.values(), ids=DROPOUT)
def test_dropout_draws_keras_masks(settings: dict[str, Any]) -> None:
    for training in (True, False):
        windows = drawn(4, 6, FEATURES)
        same_as_keras(WIDE, windows, {**settings, "seed": 3}, training=training)


@pytest.mark.parametrize(
    ("settings", "call"),
    [
        ({"activation": "relu"}, {}),
        ({"recurrent_activation": "hard_sigmoid"}, {}),
        ({"dtype": "float64"}, {}),
        ({"return_state": True}, {}),
        ({}, {"initial_state": [np.ones([2, WIDE], np.float32)] * 2}),
    ],
    ids=["activation", "gate", "float64", "state", "first-state"],
)
def test_what_the_library_cannot_do_is_kerass(
    settings: dict[str, Any], call: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pscluster.keras.library.computed", None)  # calling the library would raise
    layers = pair(WIDE, **SEQUENCES, **settings)
    ones, others = (tf.nest.flatten(layer(drawn(2, 6, FEATURES), **call)) for layer in layers)
    for one, other in zip(ones, others, strict=True):
        np.testing.assert_array_equal(one, other)


def test_xla_compiles_the_fallback() -> None:
    layer = pscluster.keras.LSTM(WIDE)
    windows = drawn(2, 6, FEATURES)
    compiled = tf.function(layer, jit_compile=True, autograph=False)(windows)
    np.testing.assert_allclose(np.asarray(compiled), np.asarray(layer(windows)), atol=1e-5)


def test_stateful_keeps_its_state() -> None:
    layers = pair(WIDE, stateful=True, batch=2)
    for seed in (0, 1):
        ones, others = (np.asarray(layer(drawn(2, 6, FEATURES, seed=seed))) for layer in layers)
        np.testing.assert_allclose(ones, others, atol=1e-5)


SAVES = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
"""Of Keras, while it saves."""


def model(layer: type) -> Any:
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.Input((12, FEATURES)),
            keras.layers.Bidirectional(layer(WIDE, return_sequences=True)),
            layer(WIDE, dropout=0.1),
            keras.layers.Dense(3),
        ]
    )


PLAIN = """
import sys, keras, numpy as np
model = keras.models.load_model(sys.argv[1], custom_objects={"pscluster>LSTM": keras.layers.LSTM})
assert not any(name.startswith("pscluster") for name in sys.modules)
np.save(sys.argv[2], model.predict(np.load(sys.argv[2]), verbose=0))
"""


@SAVES
@pytest.mark.long
def test_a_file_opens_in_plain_keras(tmp_path: Path) -> None:
    made = model(pscluster.keras.LSTM)
    x = np.asarray(drawn(4, 12, FEATURES))
    file = tmp_path / "model.keras"
    array = tmp_path / "x.npy"
    made.save(file)
    np.save(array, x)
    python("-c", PLAIN, file, array, folder=tmp_path)
    np.testing.assert_allclose(np.load(array), made.predict(x, verbose=0), atol=1e-5)


def test_weights_have_kerass_names_and_shapes() -> None:
    ones, others = (
        [(weight.path.rsplit("/", 1)[1], weight.shape) for weight in model(layer).weights]
        for layer in (keras.layers.LSTM, pscluster.keras.LSTM)
    )
    assert ones == others


def test_a_stateless_call_captures_no_variable() -> None:
    made = model(pscluster.keras.LSTM)
    variables = (made.trainable_variables, made.non_trainable_variables)
    values = [[tf.convert_to_tensor(one.value) for one in found] for found in variables]

    @tf.function(autograph=False)
    def outputs(trainable: Any, untrained: Any, x: Any) -> Any:
        return made.stateless_call(trainable, untrained, x, training=False)[0]

    windows = drawn(4, 12, FEATURES)
    assert not outputs.get_concrete_function(*values, windows).variables
    found = np.asarray(outputs(*values, windows))
    np.testing.assert_allclose(found, made.predict(windows, verbose=0), atol=1e-6)
