"""Layers that the native library computes (`docs/kernels.md`), and whether it may."""

from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.ops import (
    control_flow_util,
)  # says whether XLA compiles this graph; nothing public does
from typing_extensions import override

from core.models.native import OWN_THREADS
from core.models.operations import portable
from kernels.library import can_be_loaded, operations
from kernels.program import NOWHERE, UNARIES, Program

SLOTS = 16
"""Slots of a batch: as many threads compute at most, and the bits follow from it."""
WIDEST = 4096
"""Units of the widest LSTM that the library computes."""


def fits(layer: Any, inputs: Any) -> bool:
    """Return whether the library computes this call of a layer: float32 on a processor.

    What it does not compute is Keras's own: XLA, GPUs, TPUs, exports, other types, a machine on
    which the library cannot be loaded.
    """
    return (
        keras.backend.backend() == "tensorflow"
        and isinstance(inputs, tf.Tensor)
        and inputs.dtype == tf.float32
        and 0 not in inputs.shape
        and layer.compute_dtype == "float32"
        and not portable()
        and not tf.config.list_logical_devices("GPU")
        and not tf.config.list_logical_devices("TPU")
        and not _compiled_by_xla()
        and can_be_loaded()
    )


def computed(
    program: Program, weights: list[tf.Tensor], rows: tf.Tensor, floats: Any, *, training: bool
) -> tf.Tensor:
    """Return (batch, floats), the last value of a program of windows (batch, steps, features).

    The weights lie one after the other, in this order. In training it keeps what the gradient
    needs; else a gradient computes it again. It can be differentiated once.
    """
    settings = tf.stack([SLOTS, OWN_THREADS, floats, int(training)])
    program_words = tf.stack(program.words)

    # autograph would look through custom_gradient at the bare function
    @tf.autograph.experimental.do_not_convert
    @tf.custom_gradient
    def layer(vector: tf.Tensor, windows: tf.Tensor) -> Any:
        arguments = {
            "program": program_words,
            "trained": vector,
            "windows": windows,
            "settings": settings,
        }
        run = operations().pscluster_layer(**arguments)

        def gradient(by_results: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            gradients = operations().pscluster_layer_gradient(
                **arguments, kept=run.kept, by_results=by_results
            )
            return gradients.by_trained, tf.reshape(gradients.by_windows, tf.shape(windows))

        return run.results, gradient

    vector = tf.concat([tf.reshape(weight, [-1]) for weight in weights], 0)
    return layer(vector, rows)


def value_of(weight: Any) -> tf.Tensor:
    """Return a weight as a tensor.

    Keras hands out what it has in a stateless call, else a variable, which a custom gradient would
    count as its own.
    """
    return tf.convert_to_tensor(keras.ops.convert_to_tensor(weight))


def size_of(tensor: tf.Tensor, axis: int) -> Any:
    """Return the size of an axis, a number where it is known."""
    return tensor.shape[axis] or tf.shape(tensor)[axis]


def _compiled_by_xla() -> bool:
    if tf.executing_eagerly():
        return False
    graph = tf.compat.v1.get_default_graph()
    return bool(control_flow_util.GraphOrParentsInXlaContext(graph))


@keras.saving.register_keras_serializable(package="pscluster")
class Dense(keras.layers.Dense):
    """A dense layer in the place of `keras.layers.Dense`, with the same bits on every processor.

    It has the same arguments, weights, results and gradients (to 1e-5). The library computes the
    product in float32 with its bias and ReLU; other activations are TensorFlow's, whose bits are
    those of a kind of processor. As with `LSTM`, other dtypes, XLA, GPUs, TPUs, quantized weights
    and machines that cannot load the library are Keras's own computation.
    """

    @override
    def call(self, inputs: Any, training: Any = None) -> Any:
        """Return (batch, ..., units) from inputs (batch, ..., features)."""
        if not fits(self, inputs) or self.quantization_mode is not None:
            return super().call(inputs, training=training)
        features = inputs.shape[-1]
        sizes = tf.shape(inputs)
        steps = tf.reduce_prod(sizes[1:-1])
        kernel = value_of(self.kernel)
        weights = [kernel]
        bias_at = NOWHERE
        if self.bias is not None:
            weights.append(value_of(self.bias))
            bias_at = features * self.units
        program = Program()
        outputs = program.add("sequence", [program.add("windows", [], steps, features)])
        outputs = program.add("dense", [outputs], 0, bias_at, self.units, 0)
        has_relu = self.activation is keras.activations.relu
        if has_relu:
            program.add("unary", [outputs], UNARIES.index("relu"))
        rows = tf.reshape(inputs, [sizes[0], steps, features])
        layer_outputs = computed(
            program, weights, rows, steps * self.units, training=bool(training)
        )
        layer_outputs = tf.reshape(layer_outputs, tf.concat([sizes[:-1], [self.units]], 0))
        layer_outputs = tf.ensure_shape(layer_outputs, [*inputs.shape[:-1], self.units])
        if self.activation is None or has_relu:
            return layer_outputs
        return self.activation(layer_outputs)


@keras.saving.register_keras_serializable(package="pscluster")
class LSTM(keras.layers.LSTM):
    """An LSTM layer in the place of `keras.layers.LSTM`, faster on a processor.

    It has the same arguments, weights, results and gradients (to 1e-5), and the same bits on every
    processor and any number of threads.

    Weights have Keras's names, shapes and order, so `set_weights`, `.weights.h5` and
    `keras.layers.Bidirectional` take either layer. A `.keras` file with this layer opens after
    `import pscluster.keras`, or in plain Keras with `keras.models.load_model(file,
    custom_objects={"pscluster>LSTM": keras.layers.LSTM})`.

    The library computes float32 with tanh and sigmoid, with any of `return_sequences`,
    `go_backwards`, `unroll`, `use_bias`, input `dropout` and masks. Everything else is Keras's own
    computation, with Keras's results and speed, and bits of the machine: `initial_state`,
    `return_state`, `stateful`, other activations, `recurrent_dropout` in training, other dtypes,
    XLA (`jit_compile=True`), `use_cudnn=True`, GPUs, TPUs and machines that cannot load the
    library.

    The library has first derivatives only: for a gradient of a gradient use `keras.layers.LSTM`.
    """

    @override
    def call(
        self, sequences: Any, initial_state: Any = None, mask: Any = None, training: Any = False
    ) -> Any:
        """Return every output (batch, steps, units) or the last one (batch, units).

        The inputs are (batch, steps, features); a mask (batch, steps) says which steps count.
        """
        if initial_state is not None or not self._fits(sequences, training):
            return super().call(sequences, initial_state, mask=mask, training=training)
        if isinstance(mask, list | tuple):
            mask = mask[0]
        sequences = self._dropped(sequences, training)
        if mask is not None:
            return self._masked(sequences, tf.cast(mask, tf.int32), training)
        outputs = self._read(
            sequences, training, backward=self.go_backwards, every_step=self.return_sequences
        )
        if self.go_backwards and self.return_sequences:
            return tf.reverse(outputs, [1])
        return outputs

    def _fits(self, sequences: Any, training: Any) -> bool:
        cell = self.cell
        masks_per_gate = cell.implementation == 1 or cell.dropout >= 1.0
        return (
            fits(self, sequences)
            and self.units <= WIDEST
            and not (self.stateful or self.return_state)
            and cell.activation is keras.activations.tanh
            and cell.recurrent_activation is keras.activations.sigmoid
            and not (training and (cell.recurrent_dropout or (cell.dropout and masks_per_gate)))
            and self.use_cudnn is not True
        )

    def _dropped(self, sequences: Any, training: Any) -> Any:
        """Drop by one mask for all steps, as Keras draws it: the seeds' states move on alike."""
        cell = self.cell
        first = sequences[:, 0, :]
        self._maybe_config_dropout_masks(cell, first, tf.zeros([tf.shape(first)[0], self.units]))
        if training and cell.dropout:
            sequences = sequences * tf.expand_dims(cell.get_dropout_mask(first), 1)
        self._maybe_reset_dropout_masks(cell)
        return sequences

    def _masked(self, sequences: Any, mask: Any, training: Any) -> Any:
        """Read the steps that count one after the other; in between the last output stays."""
        if self.go_backwards:
            mask = tf.reverse(mask, [1])
            sequences = tf.reverse(sequences, [1])
        order = tf.argsort(1 - mask, axis=1, stable=True)
        outputs = self._read(
            tf.gather(sequences, order, batch_dims=1), training, backward=False, every_step=True
        )
        read = tf.cumsum(mask, 1)
        if not self.return_sequences:
            read = read[:, -1:]
            mask = mask[:, -1:]
        has_output = read > 0
        if self.zero_output_for_mask:
            has_output = mask > 0
        step_outputs = tf.gather(outputs, tf.maximum(read - 1, 0), batch_dims=1)
        step_outputs = tf.where(has_output[:, :, None], step_outputs, 0.0)
        if self.return_sequences:
            return step_outputs
        return step_outputs[:, 0]

    def _read(self, sequences: Any, training: Any, *, backward: bool, every_step: bool) -> Any:
        """Return the output that belongs to each step, or that of the step that is read last."""
        units = self.units
        steps = size_of(sequences, 1)
        features = sequences.shape[2]
        program = Program()
        outputs = program.add("sequence", [program.add("windows", [], steps, features)])
        bias_at = (features + units) * 4 * units
        outputs = program.add("lstm", [outputs], 0, bias_at, units, int(backward))
        floats = steps * units
        shape = [*sequences.shape[:2], units]
        if not every_step:
            last = -1
            if backward:
                last = 0
            program.add("at", [outputs], last)
            floats = units
            shape = [sequences.shape[0], units]
        weights = [value_of(self.cell.kernel), value_of(self.cell.recurrent_kernel)]
        if self.use_bias:
            weights.append(value_of(self.cell.bias))
        else:
            weights.append(tf.zeros([4 * units]))
        layer_outputs = computed(program, weights, sequences, floats, training=bool(training))
        if every_step:
            layer_outputs = tf.reshape(layer_outputs, [-1, steps, units])
        return tf.ensure_shape(layer_outputs, shape)
