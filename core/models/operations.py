"""The operations that networks are written in: TensorFlow computes them, an export writes them.

A tensor is whatever the operations hand out; it knows `+`, `-`, `*` and `/` with another tensor,
or with numbers on its right. The first axis of a tensor is the batch. A sequence, what `sequence`
makes of windows, has its axes as the LSTM wants them: the last one alone, the features, has a
place that a network may name.

The code that traces a function for XLA announces it here, since a layer does not know its device: a
network is traced with TensorFlow's fused operations, or with what XLA compiles.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

Tensor = Any
Array = Any
"""A parameter, or constants: TensorFlow's where it computes, NumPy's where it is exported."""
Unary = Literal["relu", "absolute", "sqrt", "square", "log1p"]
Reduction = Literal["mean", "sum", "max", "min"]
FEATURES = 2
"""The axis of a sequence's features."""


@dataclass(frozen=True, eq=False)
class LstmCell:
    """One direction of an LSTM; its gates lie in the order i, f, g, o.

    `kernel`, (features + hidden, 4 * hidden), has the input's rows, then the state's; `bias` is
    (4 * hidden,). A backward cell reads from the last step to the first, and its outputs come in
    the order of the inputs.
    """

    kernel: Array
    bias: Array
    backward: bool = False

    @property
    def hidden(self) -> int:
        """Return the number of units."""
        return int(self.bias.shape[0]) // 4

    @property
    def by_input(self) -> Array:
        """Return the rows of the kernel that the inputs are multiplied with."""
        return self.kernel[: -self.hidden]

    @property
    def by_state(self) -> Array:
        """Return the rows of the kernel that the state is multiplied with."""
        return self.kernel[-self.hidden :]


class Operations(ABC):
    """What networks are made of. Each call answers with a tensor."""

    def __init__(self, parameters: Mapping[str, Array]) -> None:
        """Hold `parameters`, which the layers of a network find by name."""
        self.parameters = parameters

    @abstractmethod
    def dense(self, inputs: Tensor, kernel: Array, bias: Array | None) -> Tensor:
        """A matrix product over the last axis, plus `bias` if there is one."""

    @abstractmethod
    def convolution(self, inputs: Tensor, kernel: Array, bias: Array, stride: int) -> Tensor:
        """A convolution over the steps of (batch, steps, features), with zeros beyond the ends.

        `kernel` is (taps, inputs, outputs); ceil(steps / stride) steps stay.
        """

    @abstractmethod
    def sequence(self, windows: Tensor) -> Tensor:
        """Return the sequence of windows (batch, steps, features), in the order of its own axes."""

    @abstractmethod
    def lstm(self, sequence: Tensor, cells: Sequence[LstmCell]) -> Tensor:
        """Return the outputs of every step, of one cell, or of a forward and a backward one.

        Two cells' features lie side by side, those of the forward one first.
        """

    @abstractmethod
    def at(self, sequence: Tensor, step: int) -> Tensor:
        """Return (batch, features) of one step; -1 is the last one."""

    @abstractmethod
    def averaged(self, sequence: Tensor) -> Tensor:
        """Return (batch, features), the mean over all steps."""

    def ends(self, sequence: Tensor, half: int) -> Tensor:
        """Return (batch, 2 * half), the state that each direction of a bi-LSTM ends in."""
        forward = self.cut(self.at(sequence, -1), 1, 0, half)
        backward = self.cut(self.at(sequence, 0), 1, half, 2 * half)
        return self.concat([forward, backward], 1)

    @abstractmethod
    def layer_norm(self, inputs: Tensor, scale: Array, shift: Array, epsilon: float) -> Tensor:
        """Mean 0 and variance 1 over the last axis, then scale and shift."""

    @abstractmethod
    def window_norm(self, windows: Tensor, epsilon: float) -> Tensor:
        """Bring channels of (batch, steps, channels) to mean 0 and variance 1 over the steps."""

    @abstractmethod
    def step_norm(self, name: str, sequence: Tensor, epsilon: float) -> Tensor:
        """Mean 0 and variance 1 over batch and features of each step, then one scale and one shift.

        The parameters `scale`, `shift`, `mean` and `variance` are below `name`.
        """

    @abstractmethod
    def dropout(self, inputs: Tensor, keep_probability: float, site: int) -> Tensor:
        """Keep each element with this probability, scaled up by its inverse, in training only.

        `site` distinguishes the masks of one network's several dropouts.
        """

    @abstractmethod
    def from_windows(self, compute: Callable[[], Tensor]) -> Tensor:
        """Return (batch, numbers) that follow from the windows alone; they stop the gradient."""

    @abstractmethod
    def unary(self, operation: Unary, inputs: Tensor) -> Tensor:
        """Apply the operation element by element."""

    @abstractmethod
    def reduce(
        self, operation: Reduction, inputs: Tensor, axis: int, *, keep_axis: bool = False
    ) -> Tensor:
        """Reduce one axis, which stays with length 1 if `keep_axis`."""

    def lagged(self, inputs: Tensor, steps: int, lag: int) -> Tensor:
        """Average (batch, steps, features) times itself `lag` steps later, over these pairs."""
        pairs = self.cut(inputs, 1, lag, steps) * self.cut(inputs, 1, 0, steps - lag)
        return self.reduce("mean", pairs, 1)

    @abstractmethod
    def add_n(self, tensors: Sequence[Tensor]) -> Tensor:
        """The sum of tensors of one shape."""

    @abstractmethod
    def clip(self, inputs: Tensor, low: float, high: float) -> Tensor:
        """Elements below `low` become `low`, those above `high` become `high`."""

    @abstractmethod
    def cut(self, inputs: Tensor, axis: int, begin: int, end: int) -> Tensor:
        """Elements from `begin` up to `end` along an axis other than the batch."""

    @abstractmethod
    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Put the tensors side by side along an axis."""

    @abstractmethod
    def reshape(self, inputs: Tensor, shape: Sequence[int]) -> Tensor:
        """Return the elements in the shape (first, *shape); the first axis takes what is left."""

    @abstractmethod
    def transpose(self, inputs: Tensor, order: Sequence[int]) -> Tensor:
        """The axes in another order."""


Lstm = Callable[[Any, Any, Any], Any]
"""Outputs of every step from inputs, kernel and bias, as `core.models.lstm` has them."""

_COMPILED: ContextVar[bool] = ContextVar("compiled", default=False)


@contextmanager
def compiled_by_xla(enabled: bool = True) -> Iterator[None]:
    """Trace what is inside for XLA, if `enabled`."""
    before = _COMPILED.set(enabled)
    try:
        yield
    finally:
        _COMPILED.reset(before)


def for_xla() -> bool:
    """Whether what is traced now is for XLA."""
    return _COMPILED.get()


_PORTABLE: ContextVar[bool] = ContextVar("portable", default=False)


@contextmanager
def portable_operations() -> Iterator[None]:
    """Trace what is inside with TensorFlow's own operations, for programs without ours."""
    before = _PORTABLE.set(True)
    try:
        yield
    finally:
        _PORTABLE.reset(before)


def portable() -> bool:
    """Whether what is traced now has TensorFlow's own operations alone."""
    return _PORTABLE.get()
