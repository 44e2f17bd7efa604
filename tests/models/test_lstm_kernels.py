"""Both LSTM kernels against each other and against Keras: outputs and gradients to 1e-5."""

from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from cluster.models import lstm as choice
from cluster.models.lstm import block_lstm, lstm, split_gradient_lstm

STEPS, BATCH = 17, 3
SHAPES = [(9, 8), (32, 32), (64, 48), (5, 65)]
Results = list[NDArray[np.float32]]


def operands(features: int, hidden: int, steps: int = STEPS) -> Results:
    draw = np.random.Generator(np.random.Philox(features * 1000 + hidden)).standard_normal
    return [
        draw((steps, BATCH, features)).astype(np.float32),
        (draw((features + hidden, 4 * hidden)) / np.sqrt(features + hidden)).astype(np.float32),
        draw(4 * hidden).astype(np.float32),
        draw((steps, BATCH, hidden)).astype(np.float32) / steps,
    ]


@tf.function
def with_gradients(kernel, inputs, weights, bias, direction):  # type: ignore[no-untyped-def]
    with tf.GradientTape() as tape:
        tape.watch([inputs, weights, bias])
        outputs = kernel(inputs, weights, bias)
        loss = tf.reduce_sum(outputs * direction)
    return outputs, tape.gradient(loss, [inputs, weights, bias])


def run(kernel: object, values: Results) -> Results:
    outputs, gradients = with_gradients(kernel, *(tf.constant(value) for value in values))
    return [outputs.numpy(), *(gradient.numpy() for gradient in gradients)]


def run_keras(values: Results, *, backward: bool = False) -> Results:
    inputs, weights, bias, direction = values
    features, hidden = inputs.shape[2], bias.shape[0] // 4
    layer = keras.layers.LSTM(hidden, return_sequences=True, go_backwards=backward)
    layer.build((None, None, features))
    layer.set_weights([weights[:features], weights[features:], bias])
    time_major = tf.constant(inputs)
    with tf.GradientTape() as tape:
        tape.watch(time_major)
        outputs = tf.transpose(layer(tf.transpose(time_major, [1, 0, 2])), [1, 0, 2])
        outputs = tf.reverse(outputs, [0]) if backward else outputs
        loss = tf.reduce_sum(outputs * direction)
    by_inputs, by_kernel, by_state, by_bias = tape.gradient(
        loss, [time_major, layer.cell.kernel, layer.cell.recurrent_kernel, layer.cell.bias]
    )
    return [outputs.numpy(), by_inputs.numpy(), np.concatenate([by_kernel, by_state]), by_bias.numpy()]


def assert_same(found: Results, expected: Results) -> None:
    for name, one, other in zip(("outputs", "inputs", "kernel", "bias"), found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("kernel", [block_lstm, split_gradient_lstm], ids=["block", "split_gradient"])
@pytest.mark.parametrize(("features", "hidden"), SHAPES)
def test_a_kernel_equals_keras(kernel: object, features: int, hidden: int) -> None:
    values = operands(features, hidden)
    assert_same(run(kernel, values), run_keras(values))


@pytest.mark.parametrize(("features", "hidden"), SHAPES)
def test_the_kernels_equal_each_other(features: int, hidden: int) -> None:
    values = operands(features, hidden)
    assert_same(run(split_gradient_lstm, values), run(block_lstm, values))


@pytest.mark.parametrize("steps", [1, 12, 32, 36])
def test_the_loop_over_several_steps_a_turn_leaves_none_out(steps: int) -> None:
    """One turn of 1, one of 12, two of 16, three of 12; the 17 steps above are turns of one."""
    values = operands(9, 8, steps)
    assert_same(run(split_gradient_lstm, values), run(block_lstm, values))


@pytest.mark.parametrize("hidden", [8, 65])
def test_backward_equals_keras_reading_from_the_end(hidden: int) -> None:
    values = operands(hidden, hidden)
    assert_same(run(lambda *args: lstm(*args, backward=True), values), run_keras(values, backward=True))


@pytest.mark.parametrize(
    ("features", "hidden", "expected"),
    [
        (32, 32, "block"),
        (64, 32, "block"),
        (48, 48, "block"),
        (64, 64, "split"),
        (256, 64, "split"),
        (128, 128, "split"),
    ],
)
def test_the_kernel_follows_from_the_shapes(
    features: int, hidden: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def noted(name: str) -> Callable[..., tf.Tensor]:
        def kernel(inputs: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
            asked.append(name)
            return inputs

        return kernel

    monkeypatch.setattr(choice, "block_lstm", noted("block"))
    monkeypatch.setattr(choice, "split_gradient_lstm", noted("split"))
    for batch in (1, 100):
        lstm(tf.zeros([2, batch, features]), tf.zeros([features + hidden, 4 * hidden]), tf.zeros([4 * hidden]))
    assert asked == [expected, expected]


def test_the_gradient_tensorflow_registers_is_still_the_wrong_one() -> None:
    """Why `block_lstm` brings its own: when this fails, TensorFlow has repaired it and ours can go."""
    values = operands(9, 8)
    hidden = 8

    def registered(inputs: tf.Tensor, weights: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        zeros = tf.zeros([BATCH, hidden])
        return tf.raw_ops.BlockLSTMV2(
            seq_len_max=tf.constant(STEPS, tf.int64), x=inputs, cs_prev=zeros, h_prev=zeros, w=weights, b=bias,
            wci=tf.zeros([hidden]), wcf=tf.zeros([hidden]), wco=tf.zeros([hidden]), use_peephole=False,
        ).h  # fmt: skip

    outputs, *gradients = run(registered, values)
    expected_outputs, *expected = run_keras(values)
    np.testing.assert_allclose(outputs, expected_outputs, atol=1e-5)
    assert np.abs(gradients[1] - expected[1]).max() > 0.1 * np.abs(expected[1]).max()
