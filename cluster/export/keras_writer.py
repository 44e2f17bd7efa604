"""A model of Keras's own layers and operations, which plain Keras opens without our code."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cluster.export.graph import OUTPUT
from cluster.export.writer import STEPS, Writer
from core.ground.lazy import keras
from core.models.operations import Array, LstmCell, Reduction, Tensor, Unary

if TYPE_CHECKING:
    from cluster.jobs.train_result import StoredModel


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
