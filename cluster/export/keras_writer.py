"""A model of Keras's own layers and operations, which plain Keras opens without anything of ours."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

import cluster.engine.environment  # noqa: F401  (before tensorflow)
from cluster.export.writer import Cell, Each, Floats, Over, Own, Tensor, Writer


class KerasWriter(Writer):
    """See Writer; a tensor is a KerasTensor."""

    def __init__(self, input_name: str, steps: int, channels: int) -> None:
        self.windows = keras.Input((steps, channels), name=input_name)
        self._values: list[tuple[Any, list[Floats]]] = []

    def model(self, answer: Tensor, output_name: str) -> Any:
        """The whole model with its weights."""
        made = keras.Model(self.windows, keras.layers.Identity(name=output_name)(answer), name="pscluster")
        for layer, values in self._values:
            layer.set_weights(values)
        return made

    def _layer(self, layer: Any, inputs: Tensor, *values: Floats) -> Tensor:
        self._values.append((layer, list(values)))
        return layer(inputs)

    def dense(self, inputs: Tensor, kernel: Floats, bias: Floats | None) -> Tensor:
        """See Writer."""
        layer = keras.layers.Dense(kernel.shape[1], use_bias=bias is not None)
        return self._layer(layer, inputs, kernel, *([] if bias is None else [bias]))

    def lstm(self, inputs: Tensor, cells: Sequence[Cell]) -> Tensor:
        """See Writer."""
        layers = [keras.layers.LSTM(cell.hidden, return_sequences=True, go_backwards=cell.backward) for cell in cells]
        values = [array for cell in cells for array in (cell.kernel, cell.recurrent, cell.bias)]
        if len(cells) == 2:
            return self._layer(keras.layers.Bidirectional(layers[0], backward_layer=layers[1]), inputs, *values)
        found = self._layer(layers[0], inputs, *values)
        return keras.ops.flip(found, axis=1) if cells[0].backward else found

    def convolution(self, inputs: Tensor, kernel: Floats, bias: Floats, stride: int) -> Tensor:
        """See Writer."""
        taps, _, filters = kernel.shape
        return self._layer(keras.layers.Conv1D(filters, taps, strides=stride, padding="same"), inputs, kernel, bias)

    def layer_norm(self, inputs: Tensor, scale: Floats, shift: Floats, epsilon: float) -> Tensor:
        """See Writer."""
        return self._layer(keras.layers.LayerNormalization(epsilon=epsilon), inputs, scale, shift)

    def each(self, operation: Each, first: Tensor, second: Tensor | Floats | float) -> Tensor:
        """See Writer."""
        other = np.asarray(second, np.float32) if isinstance(second, float | np.floating | np.ndarray) else second
        return getattr(keras.ops, operation)(first, other)

    def own(self, operation: Own, inputs: Tensor) -> Tensor:
        """See Writer."""
        return getattr(keras.ops, operation)(inputs)

    def over(self, operation: Over, inputs: Tensor, axis: int, *, kept: bool = False) -> Tensor:
        """See Writer."""
        return getattr(keras.ops, operation)(inputs, axis=axis, keepdims=kept)

    def cut(self, inputs: Tensor, axis: int, begin: int, end: int) -> Tensor:
        """See Writer."""
        return inputs[(*(slice(None),) * axis, slice(begin, end))]

    def joined(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        """See Writer."""
        return keras.ops.concatenate(list(parts), axis=axis)

    def shaped(self, inputs: Tensor, shape: Sequence[int]) -> Tensor:
        """See Writer."""
        return keras.ops.reshape(inputs, (-1, *shape))

    def turned(self, inputs: Tensor, order: Sequence[int]) -> Tensor:
        """See Writer."""
        return keras.ops.transpose(inputs, tuple(order))
