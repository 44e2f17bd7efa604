"""The same training step in Keras 3, a process of its own: `python -m benchmarks.kernel.in_keras`.

Keras's layers in one `tf.function`, as `fit` runs them but without its callbacks and iterators. The
order's `parts` says how the batch is cut: into that many parts side by side, their gradients summed
before one clip and one Adam, or not at all. With `--split` an operation has one thread, as in a
worker; without, TensorFlow uses all cores both ways it can. The layers loop over the time steps:
TensorFlow has no fused LSTM for a CPU behind them.
"""

import argparse
import os
from typing import Any

import core.engine.environment  # noqa: F401  (before tensorflow)
from benchmarks.kernel.ours import PRODUCT, one_thread_an_operation
from benchmarks.kernel.serving import Step, serve

import keras  # isort: skip
import numpy as np  # isort: skip
import tensorflow as tf  # isort: skip

Layer = Any


def dense(arrays: Any, name: str, activation: str | None = None) -> Layer:
    """A dense layer with the weights of that name."""
    kernel = arrays[f"{name}/kernel"]
    bias = arrays[f"{name}/bias"]
    layer = keras.layers.Dense(kernel.shape[1], activation=activation)
    layer.build((None, None, kernel.shape[0]))
    layer.set_weights([kernel, bias])
    return layer


def lstm(arrays: Any, name: str, *, backward: bool = False, every_step: bool = True) -> Layer:
    """An LSTM with the weights of that name.

    `every_step` false gives the last step's output alone.
    """
    kernel = arrays[f"{name}/kernel"]
    bias = arrays[f"{name}/bias"]
    hidden = bias.shape[0] // 4
    features = kernel.shape[0] - hidden
    layer = keras.layers.LSTM(hidden, return_sequences=every_step, go_backwards=backward)
    layer.build((None, None, features))
    layer.set_weights([kernel[:features], kernel[features:], bias])
    return layer


def bidirectional(arrays: Any, name: str, hidden: Any) -> Any:
    """Keras's own wrapper around an LSTM a direction, applied.

    It copies the layers, so the weights come after it.
    """
    ways = [lstm(arrays, f"{name}/forward"), lstm(arrays, f"{name}/backward", backward=True)]
    wrapper = keras.layers.Bidirectional(ways[0], backward_layer=ways[1])
    outputs = wrapper(hidden)
    for inner, way in zip((wrapper.forward_layer, wrapper.backward_layer), ways, strict=True):
        inner.set_weights(way.get_weights())
    return outputs


def thesis(order: dict[str, Any], arrays: Any, hidden: Any) -> Any:
    """Logits of the thesis's network."""
    layers = order["stacked"]
    cells = max(1, order["highway"])
    ways = order["bidirectional"]
    for k in range(layers):
        last = k == layers - 1
        outputs = []
        for j in range(cells):
            for way in ("/forward", "/backward") if ways else ("",):
                name = f"layer{k}/cell{j}{way}"
                backward = way == "/backward"
                read = lstm(arrays, f"{name}/lstm", backward=backward, every_step=not last)(
                    dense(arrays, f"{name}/projection", "relu")(hidden)
                )
                outputs.append(keras.ops.flip(read, 1) if backward and not last else read)
        if ways:
            pairs = [keras.layers.Concatenate()(outputs[j : j + 2]) for j in range(0, 2 * cells, 2)]
        else:
            pairs = outputs
        if len(pairs) > 1:
            hidden = keras.layers.Add()(pairs)
        else:
            hidden = pairs[0]
    return dense(arrays, "head")(hidden)


def deep(arrays: Any, hidden: Any) -> Any:
    """Logits of the dBLSTM."""
    for name in ("layer0", "layer1"):
        hidden = bidirectional(arrays, name, hidden)
    return dense(arrays, "head")(lstm(arrays, "layer2", every_step=False)(hidden))


def build(order: dict[str, Any]) -> tuple[Step, dict[str, Any]]:
    """The step of one cell, and what it is."""
    keras.backend.clear_session()
    arrays = np.load(order["arrays"])
    windows = tf.constant(arrays["windows"])
    classes = tf.constant(arrays["classes"])
    count = len(arrays["classes"])
    parts = order["parts"]
    sizes = [len(piece) for piece in np.array_split(arrays["classes"], parts)]
    pieces = list(zip(tf.split(windows, sizes), tf.split(classes, sizes), strict=True))
    inputs = keras.Input(windows.shape[1:])
    if order["model"] == "thesis":
        outputs = thesis(order, arrays, inputs)
    else:
        outputs = deep(arrays, inputs)
    model = keras.Model(inputs, outputs)
    optimizer = keras.optimizers.Adam(order["learning_rate"], global_clipnorm=order["clip_norm"])
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    def of_part(own_windows: Any, own_classes: Any) -> tuple[Any, list[Any]]:
        with tf.GradientTape() as tape:
            loss = loss_of(own_classes, model(own_windows, training=True)) / count
        return loss, tape.gradient(loss, model.trainable_variables)

    @tf.function(autograph=False)
    def train() -> Any:
        losses, gradients = zip(*(of_part(*piece) for piece in pieces), strict=True)
        total = [tf.add_n(own) for own in zip(*gradients, strict=True)]
        optimizer.apply(total, model.trainable_variables)
        return tf.add_n(losses)

    weights = sum(
        int(np.prod(variable.shape))
        for variable in model.trainable_variables
        if len(variable.shape) > 1
    )
    head = int(np.prod(arrays["head/kernel"].shape))
    if parts > 1:
        cut = f"{parts} parts side by side"
    else:
        cut = "one piece"
    return lambda: float(train()), {
        "variant": f"{cut}, tf.function",
        "matrix_parameters": weights - head,
    }


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernel.in_keras")
    parser.add_argument(
        "--split", action="store_true", help="a thread an operation; the parts lie side by side"
    )
    if parser.parse_args().split:
        one_thread_an_operation(len(os.sched_getaffinity(0)))
    factor = tf.random.uniform([PRODUCT, PRODUCT])
    serve(build, lambda: tf.matmul(factor, factor).numpy())


if __name__ == "__main__":
    main()
