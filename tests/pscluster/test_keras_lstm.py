"""`pscluster.keras.LSTM` beside `keras.layers.LSTM`: results, gradients, weights, files."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import pscluster.keras
from pscluster.keras import kernels

FEATURES = 7
NARROW, WIDE = 4, 48
"""Units of the fused kernel and of the chunked one."""


def drawn(*shape: int, seed: int = 0) -> Any:
    return tf.constant(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def pair(units: int, *, both_ways: bool = False, **settings: Any) -> list[Any]:
    layers = [made(units, **settings) for made in (keras.layers.LSTM, pscluster.keras.LSTM)]
    if both_ways:
        layers = [keras.layers.Bidirectional(layer) for layer in layers]
    for layer in layers:
        layer.build((None, None, FEATURES))
    layers[1].set_weights(layers[0].get_weights())
    return layers


def traced(layer: Any, windows: Any, *, graph: bool = True, signature: Any = None, **call: Any) -> list[Any]:
    """Results, then the gradients by inputs, weights and states of a function of all results."""
    states = call.get("initial_state") or []

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, *states])
            results = tf.nest.flatten(layer(x, **call))
            loss = tf.add_n([tf.reduce_sum(tf.sin(1.3 * result)) for result in results])
        variables = [variable.value for variable in layer.trainable_variables]
        return [*results, *tape.gradient(loss, [x, *variables, *states])]

    run = tf.function(step, autograph=False, input_signature=signature) if graph else step
    return [np.asarray(tensor) for tensor in run(windows)]


def assert_same(ones: list[Any], others: list[Any]) -> None:
    for one, other in zip(ones, others, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-5 * max(1.0, float(np.abs(one).max())))


SETTINGS: dict[str, dict[str, Any]] = {
    "last": {},
    "sequences": {"return_sequences": True},
    "states-backwards": {"return_sequences": True, "return_state": True, "go_backwards": True},
    "no-bias-unrolled": {"use_bias": False, "unroll": True},
    "both-ways": {"both_ways": True, "return_sequences": True},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_results_and_gradients_are_those_of_keras(settings: dict[str, Any]) -> None:
    same_as_keras(NARROW, 5, settings)


def test_many_units_and_steps() -> None:
    same_as_keras(WIDE, 37, SETTINGS["both-ways"])


@pytest.mark.long
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("steps", [1, 37])
def test_many_units(steps: int, settings: dict[str, Any]) -> None:
    same_as_keras(WIDE, steps, settings)


def same_as_keras(units: int, steps: int, settings: dict[str, Any]) -> None:
    windows = drawn(5, steps, FEATURES)
    ones, others = (traced(layer, windows) for layer in pair(units, **settings))
    assert_same(ones, others)


@pytest.mark.parametrize("units", [NARROW, WIDE])
def test_a_first_state_and_unknown_steps_and_batch(units: int) -> None:
    windows, states = drawn(3, 9, FEATURES), [drawn(3, units, seed=seed) for seed in (1, 2)]
    signature = [tf.TensorSpec([None, None, FEATURES])]
    call: dict[str, Any] = {"initial_state": states, "signature": signature}
    ones, others = (traced(layer, windows, **call) for layer in pair(units, return_sequences=True, return_state=True))
    assert_same(ones, others)


def test_eagerly() -> None:
    windows = drawn(3, 9, FEATURES)
    ones, others = (traced(layer, windows, graph=False) for layer in pair(WIDE, return_sequences=True))
    assert_same(ones, others)


@pytest.mark.parametrize(
    "settings",
    [{"dropout": 0.5}, {"dropout": 0.3, "recurrent_dropout": 0.4}],
    ids=["inputs", "states"],
)
def test_dropout_draws_keras_masks(settings: dict[str, Any]) -> None:
    windows = drawn(4, 6, FEATURES)
    ones, others = (traced(layer, windows, training=True) for layer in pair(WIDE, seed=3, **settings))
    assert_same(ones, others)


@pytest.mark.parametrize(
    ("settings", "call"),
    [
        ({}, {"mask": tf.constant([[True] * 4 + [False] * 2, [True] * 6])}),
        ({"activation": "relu"}, {}),
        ({"recurrent_activation": "hard_sigmoid"}, {}),
        ({"dtype": "float64"}, {}),
    ],
    ids=["mask", "activation", "gate", "float64"],
)
def test_what_the_kernels_cannot_do_is_kerass(
    settings: dict[str, Any], call: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pscluster.keras.lstm.lstm", None)  # calling a kernel would raise
    layers = pair(WIDE, return_sequences=True, **settings)
    ones, others = (np.asarray(layer(drawn(2, 6, FEATURES), **call)) for layer in layers)
    np.testing.assert_array_equal(ones, others)


def test_kernels_run_where_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pscluster.keras.lstm.lstm", None)
    with pytest.raises(TypeError):
        pscluster.keras.LSTM(WIDE)(drawn(2, 6, FEATURES))


def test_xla_compiles_the_fallback() -> None:
    layer = pscluster.keras.LSTM(WIDE)
    windows = drawn(2, 6, FEATURES)
    compiled = tf.function(layer, jit_compile=True, autograph=False)(windows)
    np.testing.assert_allclose(np.asarray(compiled), np.asarray(layer(windows)), atol=1e-5)


def test_stateful_keeps_its_state() -> None:
    layers = [made(WIDE, stateful=True) for made in (keras.layers.LSTM, pscluster.keras.LSTM)]
    for layer in layers:
        layer.build((2, 6, FEATURES))
    layers[1].set_weights(layers[0].get_weights())
    for seed in (0, 1):
        ones, others = (np.asarray(layer(drawn(2, 6, FEATURES, seed=seed))) for layer in layers)
        np.testing.assert_allclose(ones, others, atol=1e-5)


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


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras, while it saves
@pytest.mark.long
def test_fits_as_kerass_does(tmp_path: Path) -> None:
    x, y = np.asarray(drawn(32, 12, FEATURES)), np.arange(32) % 3
    losses, models = [], [model(layer) for layer in (keras.layers.LSTM, pscluster.keras.LSTM)]
    for made in models:
        keras.utils.set_random_seed(2)
        made.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        losses.append(made.fit(x, y, epochs=2, batch_size=12, verbose=0).history["loss"])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    file = tmp_path / "model.keras"
    models[1].save(file)
    opened = keras.models.load_model(file)
    assert type(opened.layers[1]) is pscluster.keras.LSTM
    np.testing.assert_array_equal(opened.predict(x, verbose=0), models[1].predict(x, verbose=0))


PLAIN = """
import sys, keras, numpy as np
model = keras.models.load_model(sys.argv[1], custom_objects={"pscluster>LSTM": keras.layers.LSTM})
assert not any(name.startswith("pscluster") for name in sys.modules)
np.save(sys.argv[2], model.predict(np.load(sys.argv[2]), verbose=0))
"""


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras, while it saves
@pytest.mark.long
def test_a_file_opens_in_plain_keras(tmp_path: Path) -> None:
    made, x = model(pscluster.keras.LSTM), np.asarray(drawn(4, 12, FEATURES))
    file, array = tmp_path / "model.keras", tmp_path / "x.npy"
    made.save(file)
    np.save(array, x)
    subprocess.run([sys.executable, "-c", PLAIN, file, array], cwd=tmp_path, check=True)
    np.testing.assert_allclose(np.load(array), made.predict(x, verbose=0), atol=1e-5)


def test_weights_have_kerass_names() -> None:
    ones, others = (
        [(weight.path.split("/", 1)[1], weight.shape) for weight in model(layer).weights]
        for layer in (keras.layers.LSTM, pscluster.keras.LSTM)
    )
    assert [shape for _, shape in ones] == [shape for _, shape in others]
    assert [name.rsplit("/", 1)[1] for name, _ in ones] == [name.rsplit("/", 1)[1] for name, _ in others]


def test_a_stateless_call_captures_no_variable() -> None:
    made = model(pscluster.keras.LSTM)
    trained, others = ([v.value for v in found] for found in (made.trainable_variables, made.non_trainable_variables))
    specs = [[tf.TensorSpec(value.shape, value.dtype) for value in found] for found in (trained, others)]

    @tf.function(autograph=False)
    def outputs(trainable: Any, untrained: Any, x: Any) -> Any:
        return made.stateless_call(trainable, untrained, x, training=False)[0]

    windows = drawn(4, 12, FEATURES)
    concrete = outputs.get_concrete_function(*specs, windows)
    assert not concrete.variables
    found = outputs([tf.convert_to_tensor(v) for v in trained], [tf.convert_to_tensor(v) for v in others], windows)
    np.testing.assert_allclose(np.asarray(found), made.predict(windows, verbose=0), atol=1e-6)


def test_the_widths_above_mean_both_kernels() -> None:
    narrow, wide = ((FEATURES + units) * 4 * units for units in (NARROW, WIDE))
    assert narrow <= kernels.FUSED_LIMIT < wide
