"""Layers without state: names and shapes of parameters, applied in a network's operations.

Instance normalization takes each channel of a window less its mean and over its deviation: Ulyanov
et al. 2016 (arXiv 1607.08022), over time instead of space and without trained scales. It takes from
a window what a person, a pocket and a phone add to all of its samples; gravity, which says who sits
and who stands, goes too, unless the windows as they are stay beside it.
"""

from dataclasses import dataclass, replace

from core.models.network import Parameter, Problem, constant, glorot_uniform, lstm_bias, lstm_kernel
from core.models.operations import LstmCell, Operations, Tensor


@dataclass(frozen=True)
class Product:
    """A matrix product plus bias over the last axis; `bias` is the value every bias starts from."""

    name: str
    inputs: int
    outputs: int
    bias: float = 0.0

    def parameters(self) -> list[Parameter]:
        """A Glorot kernel and a constant bias."""
        return [
            Parameter(f"{self.name}/kernel", (self.inputs, self.outputs), initial=glorot_uniform),
            Parameter(
                f"{self.name}/bias", (self.outputs,), decayed=False, initial=constant(self.bias)
            ),
        ]

    def __call__(self, ops: Operations, inputs: Tensor) -> Tensor:
        """Return (..., outputs) from (..., inputs)."""
        kernel = ops.parameters[f"{self.name}/kernel"]
        return ops.dense(inputs, kernel, ops.parameters[f"{self.name}/bias"])


@dataclass(frozen=True)
class Convolution:
    """A convolution over time, `taps` samples wide, with an output every `stride` samples.

    Zeros lie beyond the window.
    """

    name: str
    inputs: int
    outputs: int
    taps: int
    stride: int

    def parameters(self) -> list[Parameter]:
        """A Glorot kernel of shape (taps, inputs, outputs) and a zero bias."""
        return [
            Parameter(
                f"{self.name}/kernel",
                (self.taps, self.inputs, self.outputs),
                initial=glorot_uniform,
            ),
            Parameter(f"{self.name}/bias", (self.outputs,), decayed=False, initial=constant(0.0)),
        ]

    def __call__(self, ops: Operations, inputs: Tensor) -> Tensor:
        """Return (batch, ceil(steps / stride), outputs) from (batch, steps, inputs)."""
        kernel = ops.parameters[f"{self.name}/kernel"]
        return ops.convolution(inputs, kernel, ops.parameters[f"{self.name}/bias"], self.stride)


@dataclass(frozen=True)
class Lstm:
    """One LSTM over time-major inputs; `backward` reads them from the last step to the first."""

    name: str
    features: int
    hidden: int
    backward: bool = False

    def parameters(self) -> list[Parameter]:
        """List Keras's 4 * hidden * (features + hidden + 1), input and state rows in one kernel."""
        rows = self.features + self.hidden
        columns = 4 * self.hidden
        return [
            Parameter(f"{self.name}/kernel", (rows, columns), initial=lstm_kernel),
            Parameter(f"{self.name}/bias", (columns,), decayed=False, initial=lstm_bias),
        ]

    def cell(self, ops: Operations) -> LstmCell:
        """Return the parameters and the direction."""
        kernel = ops.parameters[f"{self.name}/kernel"]
        return LstmCell(kernel, ops.parameters[f"{self.name}/bias"], self.backward)

    def __call__(self, ops: Operations, sequence: Tensor) -> Tensor:
        """Return a sequence of `hidden` features; output k belongs to input k either way."""
        return ops.lstm(sequence, [self.cell(ops)])


class BidirectionalLstm:
    """Two LSTMs of `hidden` units each over the same inputs, one from either end."""

    def __init__(self, name: str, features: int, hidden: int) -> None:
        backward = Lstm(f"{name}/backward", features, hidden, backward=True)
        self._directions = (Lstm(f"{name}/forward", features, hidden), backward)

    def parameters(self) -> list[Parameter]:
        """List the forward LSTM's, then the backward one's."""
        return [parameter for direction in self._directions for parameter in direction.parameters()]

    def __call__(self, ops: Operations, sequence: Tensor) -> Tensor:
        """Return a sequence of 2 * hidden features: forward outputs, then backward ones."""
        return ops.lstm(sequence, [direction.cell(ops) for direction in self._directions])


@dataclass(frozen=True)
class Dropout:
    """Keeps each element with `keep_probability` and scales it up by its inverse, in training only.

    The mask follows from a seed alone: a repeated step drops the same units, on every machine.
    `site` distinguishes the masks of one network's several dropouts.
    """

    keep_probability: float
    site: int

    def __call__(self, ops: Operations, inputs: Tensor) -> Tensor:
        """Return the inputs in their shape; training drops some elements."""
        return ops.dropout(inputs, self.keep_probability, self.site)


@dataclass(frozen=True)
class LayerNorm:
    """Mean 0 and variance 1 over the last axis, then a trained scale and shift a feature.

    It follows Ba et al. 2016.
    """

    name: str
    features: int
    epsilon: float = 1e-5

    def parameters(self) -> list[Parameter]:
        """Scales of 1 and shifts of 0, one pair a feature."""
        return [
            Parameter(f"{self.name}/scale", (self.features,), decayed=False, initial=constant(1.0)),
            Parameter(f"{self.name}/shift", (self.features,), decayed=False, initial=constant(0.0)),
        ]

    def __call__(self, ops: Operations, inputs: Tensor) -> Tensor:
        """Return the normalized inputs, (..., features)."""
        scale = ops.parameters[f"{self.name}/scale"]
        return ops.layer_norm(inputs, scale, ops.parameters[f"{self.name}/shift"], self.epsilon)


@dataclass(frozen=True)
class StepBatchNorm:
    """Mean 0 and variance 1 over batch and features of each step, one scale and shift for all.

    In training the slot's own statistics normalize it and are handed back to be averaged;
    outside training the averages do. They are untrained parameters `mean` and `variance` of shape
    (steps,).
    """

    name: str
    steps: int
    epsilon: float = 1e-3

    def parameters(self) -> list[Parameter]:
        """List a scale, 0.5 at first as in the reference code, a shift, the running statistics."""
        return [
            Parameter(f"{self.name}/scale", (1,), decayed=False, initial=constant(0.5)),
            Parameter(f"{self.name}/shift", (1,), decayed=False, initial=constant(0.0)),
            Parameter(
                f"{self.name}/mean",
                (self.steps,),
                trained=False,
                decayed=False,
                initial=constant(0.0),
            ),
            Parameter(
                f"{self.name}/variance",
                (self.steps,),
                trained=False,
                decayed=False,
                initial=constant(1.0),
            ),
        ]

    def __call__(self, ops: Operations, sequence: Tensor) -> Tensor:
        """Return a sequence of the same shape."""
        return ops.step_norm(self.name, sequence, self.epsilon)


STILL = 0.1
"""A channel that moves less than this, in deviations of the training windows, is hardly stretched:
it is noise."""


@dataclass(frozen=True)
class InstanceNorm:
    """What a recurrent network reads in place of its windows.

    `kind` is the model's key `instance_norm`.
    """

    kind: str
    window_problem: Problem

    @property
    def problem(self) -> Problem:
        """The problem of the layers behind it: `append` doubles the channels."""
        if self.kind != "append":
            return self.window_problem
        return replace(
            self.window_problem,
            input_shape=(self.window_problem.window_steps, 2 * self.window_problem.channels),
        )

    def __call__(self, ops: Operations, windows: Tensor) -> Tensor:
        """Return (batch, steps, channels of `problem`) from (batch, steps, channels)."""
        if self.kind == "none":
            return windows
        normed = ops.window_norm(windows, STILL * STILL)
        if self.kind == "replace":
            return normed
        return ops.concat([windows, normed], 2)
