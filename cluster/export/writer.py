"""What a network's export is written with: a small vocabulary that ONNX and Keras both have.

Tensors are whatever the writer hands out; their first axis is the batch. Sequences are (batch, steps, features).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Tensor = Any
Each = Literal["add", "subtract", "multiply", "divide", "minimum", "maximum"]
"""Element by element, of two tensors or of a tensor and constants."""
Own = Literal["relu", "absolute", "sqrt", "square", "log1p"]
"""Element by element, of one tensor."""
Over = Literal["mean", "sum", "max", "min"]
"""Over one axis."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One direction of an LSTM: (features, 4 * hidden), (hidden, 4 * hidden), (4 * hidden,), gates i, f, g, o."""

    kernel: Floats
    recurrent: Floats
    bias: Floats
    backward: bool = False

    @classmethod
    def of(cls, kernel: Floats, bias: Floats, *, backward: bool = False) -> "Cell":
        """From one kernel with the input's rows, then the state's, as our networks have it."""
        features = len(kernel) - len(bias) // 4
        return cls(kernel[:features], kernel[features:], bias, backward)

    @property
    def hidden(self) -> int:
        """Units."""
        return len(self.bias) // 4


class Writer(ABC):
    """Writes one model; each call adds a layer or an operation and returns what it answers."""

    windows: Tensor
    """The model's input: raw windows (batch, steps, channels)."""

    @abstractmethod
    def dense(self, inputs: Tensor, kernel: Floats, bias: Floats | None) -> Tensor:
        """A matrix product over the last axis, plus `bias` if there is one."""

    @abstractmethod
    def lstm(self, inputs: Tensor, cells: Sequence[Cell]) -> Tensor:
        """Outputs of every step, of one cell, or of a forward and a backward one side by side."""

    @abstractmethod
    def convolution(self, inputs: Tensor, kernel: Floats, bias: Floats, stride: int) -> Tensor:
        """Over the steps, zeros beyond the ends; ceil(steps / stride) stay. `kernel` (taps, inputs, outputs)."""

    @abstractmethod
    def layer_norm(self, inputs: Tensor, scale: Floats, shift: Floats, epsilon: float) -> Tensor:
        """Mean 0 and variance 1 over the last axis, then scale and shift."""

    @abstractmethod
    def each(self, operation: Each, first: Tensor, second: Tensor | Floats | float) -> Tensor:
        """Element by element, with broadcasting."""

    @abstractmethod
    def own(self, operation: Own, inputs: Tensor) -> Tensor:
        """Element by element."""

    @abstractmethod
    def over(self, operation: Over, inputs: Tensor, axis: int, *, kept: bool = False) -> Tensor:
        """Over one axis, which stays with length 1 if `kept`."""

    @abstractmethod
    def cut(self, inputs: Tensor, axis: int, begin: int, end: int) -> Tensor:
        """Elements from `begin` up to `end` along an axis other than the batch."""

    @abstractmethod
    def joined(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        """Side by side along an axis."""

    @abstractmethod
    def shaped(self, inputs: Tensor, shape: Sequence[int]) -> Tensor:
        """The same elements as (first, *shape); the first axis has as many as there are."""

    @abstractmethod
    def turned(self, inputs: Tensor, order: Sequence[int]) -> Tensor:
        """The axes in another order."""
