"""`model.keras`: layers and operations of Keras's own, which plain Keras opens without our code."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.export.graph import INPUT, OUTPUT, STEPS, Answers, Writer
from cluster.export.request import ExportRefused, Format
from core.exported.description import Description
from core.ground.errors import UsageError, reason_of
from core.ground.lazy import keras, tf
from core.models.network import BuiltIn
from core.models.operations import Array, LstmCell, Reduction, Tensor, Unary

if TYPE_CHECKING:
    from cluster.jobs.train_result import StoredModel


REMEDY = "give its classes get_config() and @keras.saving.register_keras_serializable()"


class KerasFile(Format):
    """A file of Keras."""

    name = "keras"
    quantizable = False
    packages = {}  # noqa: RUF012  the registry asks for a plain fact

    @staticmethod
    def write(model: "StoredModel", path: Path, *, quantized: bool) -> None:
        """Write the Keras model."""
        del quantized
        filled_model = keras_model(model)
        try:
            filled_model.save(path)
        except OSError:
            raise
        except (
            Exception
        ) as problem:  # whatever a layer of an app raises where it says how it is made
            raise ExportRefused(
                f"--to keras: the app's model cannot be written ({reason_of(problem):.200}):"
                f" {REMEDY}"
            ) from None

    @staticmethod
    def answers_of(path: Path, description: Description) -> Answers:
        """Load the file as a Keras model and trace it."""
        try:
            loaded = keras.models.load_model(path, compile=False)
        except (
            Exception
        ) as problem:  # whatever a class raises that Keras cannot find, or cannot make again
            raise ExportRefused(
                f"--to keras: Keras cannot open what was written ({reason_of(problem):.200}):"
                f" {REMEDY}"
            ) from None
        traced = tf.function(lambda windows: loaded(windows, training=False), autograph=False)
        return lambda windows: traced(tf.constant(windows))


def keras_model(model: "StoredModel") -> Any:
    """The model as a `keras.Model` of raw windows. Raises UsageError for an app without Keras."""
    from cluster.apps.keras_network import KerasNetwork

    network = model.network
    if isinstance(network, BuiltIn):
        return KerasWriter(model).model()
    if not isinstance(network, KerasNetwork):
        raise UsageError("--to keras: the app's model is no Keras model: use --to savedmodel")
    problem = network.problem
    standardization = model.standardization
    inputs = keras.Input(problem.input_shape, dtype=problem.input_dtype, name=INPUT)
    windows = inputs
    if len(standardization.mean):
        windows = keras.ops.divide(
            keras.ops.subtract(windows, standardization.mean), standardization.deviation
        )
    answer = network.filled(model.vector)(windows)
    return keras.Model(inputs, keras.layers.Identity(name=OUTPUT)(answer), name="pscluster")


class KerasWriter(Writer):
    """A writer whose tensors are KerasTensors."""

    def __init__(self, model: "StoredModel") -> None:
        self._values: list[tuple[Any, list[Array]]] = []
        super().__init__(model)

    def input(self, name: str, steps: int, channels: int) -> Tensor:
        """Return the input layer's tensor."""
        return keras.Input((steps, channels), name=name)

    def model(self) -> Any:
        """Return the whole model with its weights."""
        answer = keras.layers.Identity(name=OUTPUT)(self.logits())
        whole_model = keras.Model(self.windows, answer, name="pscluster")
        for layer, values in self._values:
            layer.set_weights(values)
        return whole_model

    def _layer(self, layer: Any, inputs: Tensor, *values: Array) -> Tensor:
        self._values.append((layer, list(values)))
        return layer(inputs)

    def dense(self, inputs: Tensor, kernel: Array, bias: Array | None) -> Tensor:
        """Add a Dense layer."""
        layer = keras.layers.Dense(kernel.shape[1], use_bias=bias is not None)
        return self._layer(layer, inputs, kernel, *([] if bias is None else [bias]))

    def lstm(self, sequence: Tensor, cells: Sequence[LstmCell]) -> Tensor:
        """Add an LSTM layer, in Bidirectional for two cells."""
        layers = [
            keras.layers.LSTM(cell.hidden, return_sequences=True, go_backwards=cell.backward)
            for cell in cells
        ]
        values = [array for cell in cells for array in (cell.by_input, cell.by_state, cell.bias)]
        if len(cells) == 2:
            return self._layer(
                keras.layers.Bidirectional(layers[0], backward_layer=layers[1]), sequence, *values
            )
        outputs = self._layer(layers[0], sequence, *values)
        if cells[0].backward:
            return keras.ops.flip(outputs, axis=STEPS)
        return outputs

    def convolution(self, inputs: Tensor, kernel: Array, bias: Array, stride: int) -> Tensor:
        """Add a Conv1D layer."""
        taps, _, filters = kernel.shape
        return self._layer(
            keras.layers.Conv1D(filters, taps, strides=stride, padding="same"), inputs, kernel, bias
        )

    def layer_norm(self, inputs: Tensor, scale: Array, shift: Array, epsilon: float) -> Tensor:
        """Add a LayerNormalization layer."""
        return self._layer(keras.layers.LayerNormalization(epsilon=epsilon), inputs, scale, shift)

    def at(self, sequence: Tensor, step: int) -> Tensor:
        """Slice one step out."""
        return sequence[:, step]

    def unary(self, operation: Unary, inputs: Tensor) -> Tensor:
        """Call the function of `keras.ops` with this name."""
        return getattr(keras.ops, operation)(inputs)

    def reduce(
        self, operation: Reduction, inputs: Tensor, axis: int, *, keep_axis: bool = False
    ) -> Tensor:
        """Call the reduction of `keras.ops` with this name."""
        return getattr(keras.ops, operation)(inputs, axis=axis, keepdims=keep_axis)

    def clip(self, inputs: Tensor, low: float, high: float) -> Tensor:
        """Call `keras.ops.clip`."""
        return keras.ops.clip(inputs, low, high)

    def cut(self, inputs: Tensor, axis: int, begin: int, end: int) -> Tensor:
        """Slice along the axis."""
        return inputs[(*(slice(None),) * axis, slice(begin, end))]

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Call `keras.ops.concatenate`."""
        return keras.ops.concatenate(list(tensors), axis=axis)

    def reshape(self, inputs: Tensor, shape: Sequence[int]) -> Tensor:
        """Call `keras.ops.reshape`."""
        return keras.ops.reshape(inputs, (-1, *shape))

    def transpose(self, inputs: Tensor, order: Sequence[int]) -> Tensor:
        """Call `keras.ops.transpose`."""
        return keras.ops.transpose(inputs, tuple(order))
