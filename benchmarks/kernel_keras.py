"""The same training step in Keras 3, a process of its own: `python -m benchmarks.kernel_keras`.

Keras's layers in one `tf.function`, as `fit` runs them but without its callbacks and iterators, on all cores both ways
TensorFlow can use them. The layers loop over the time steps: TensorFlow has no fused LSTM for a CPU behind them.
"""

from typing import Any

import cluster.engine.environment  # noqa: F401  (before tensorflow)
from benchmarks.kernel_serve import Step, serve

import keras  # isort: skip
import numpy as np  # isort: skip
import tensorflow as tf  # isort: skip

Layer = Any
PRODUCT = 2048


def dense(arrays: Any, name: str, activation: str | None = None) -> Layer:
    """A dense layer with the weights of that name."""
    kernel, bias = arrays[f"{name}/kernel"], arrays[f"{name}/bias"]
    layer = keras.layers.Dense(kernel.shape[1], activation=activation)
    layer.build((None, None, kernel.shape[0]))
    layer.set_weights([kernel, bias])
    return layer


def lstm(arrays: Any, name: str, *, backward: bool = False, every_step: bool = True) -> Layer:
    """An LSTM with the weights of that name; `every_step` false gives the last step's output alone."""
    kernel, bias = arrays[f"{name}/kernel"], arrays[f"{name}/bias"]
    hidden = bias.shape[0] // 4
    features = kernel.shape[0] - hidden
    layer = keras.layers.LSTM(hidden, return_sequences=every_step, go_backwards=backward)
    layer.build((None, None, features))
    layer.set_weights([kernel[:features], kernel[features:], bias])
    return layer


def bidirectional(arrays: Any, name: str, hidden: Any) -> Any:
    """Keras's own wrapper around an LSTM a direction, applied; it copies the layers, so the weights come after it."""
    ways = [lstm(arrays, f"{name}/forward"), lstm(arrays, f"{name}/backward", backward=True)]
    wrapper = keras.layers.Bidirectional(ways[0], backward_layer=ways[1])
    outputs = wrapper(hidden)
    for inner, way in zip((wrapper.forward_layer, wrapper.backward_layer), ways, strict=True):
        inner.set_weights(way.get_weights())
    return outputs


def thesis(order: dict[str, Any], arrays: Any, hidden: Any) -> Any:
    """Logits of the thesis's network."""
    layers, cells, ways = order["stacked"], max(1, order["highway"]), order["bidirectional"]
    for k in range(layers):
        last = k == layers - 1
        outputs = []
        for j in range(cells):
            for way in ("/forward", "/backward") if ways else ("",):
                name, backward = f"layer{k}/cell{j}{way}", way == "/backward"
                read = lstm(arrays, f"{name}/lstm", backward=backward, every_step=not last)(
                    dense(arrays, f"{name}/projection", "relu")(hidden)
                )
                outputs.append(keras.ops.flip(read, 1) if backward and not last else read)
        pairs = [keras.layers.Concatenate()(outputs[j : j + 2]) for j in range(0, 2 * cells, 2)] if ways else outputs
        hidden = keras.layers.Add()(pairs) if len(pairs) > 1 else pairs[0]
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
    windows, classes = tf.constant(arrays["windows"]), tf.constant(arrays["classes"])
    inputs = keras.Input(windows.shape[1:])
    outputs = thesis(order, arrays, inputs) if order["model"] == "thesis" else deep(arrays, inputs)
    model = keras.Model(inputs, outputs)
    optimizer = keras.optimizers.Adam(order["learning_rate"], global_clipnorm=order["clip_norm"])
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function(autograph=False)
    def train() -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(classes, model(windows, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    weights = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables if len(variable.shape) > 1)
    head = int(np.prod(arrays["head/kernel"].shape))
    return lambda: float(train()), {"variant": "tf.function", "matrix_parameters": weights - head}


def main() -> None:
    """Serve until standard input ends."""
    factor = tf.random.uniform([PRODUCT, PRODUCT])
    serve(build, lambda: tf.matmul(factor, factor).numpy())


if __name__ == "__main__":
    main()
