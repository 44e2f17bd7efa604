"""The operations of networks, as `core.models.operations` names them, as instructions.

This package stands below `core`, so it knows networks by their shape alone: a layout of named
parameters, a problem, and logits of operations over windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.program import NOWHERE, REDUCTIONS, SIGNS, UNARIES, Program, bits


@dataclass(frozen=True)
class CompiledNetwork:
    """A program, and the float32 constants that it reads."""

    words: Sequence[int]
    constants: Any


@dataclass(frozen=True)
class ParameterPlace:
    """Where a parameter lies: among the trained ones or the statistics, from element `at` on."""

    at: int
    shape: tuple[int, ...]
    trained: bool


@dataclass(frozen=True, eq=False)
class ProgramValue:
    """A tensor, which is the result of an instruction."""

    operations: KernelOperations
    number: int

    def __add__(self, other: Any) -> ProgramValue:
        return self._with(other, "+")

    def __sub__(self, other: Any) -> ProgramValue:
        return self._with(other, "-")

    def __mul__(self, other: Any) -> ProgramValue:
        return self._with(other, "*")

    def __truediv__(self, other: Any) -> ProgramValue:
        return self._with(other, "/")

    def _with(self, other: Any, sign: str) -> ProgramValue:
        return self.operations.binary(sign, self, other)


class KernelOperations:
    """Writes a program. `constants` are the arrays that it reads beside the parameters."""

    def __init__(self, network: Any, measured: int = 0, *, reads_samples: bool = True) -> None:
        """Begin with the network's windows.

        With `measured`, what `from_windows` returns is there already: a row of the input has the
        samples of a window where the network `reads_samples`, then so many numbers.
        """
        layout = network.layout
        places = {}
        for slot in layout.slots:
            at = slot.offset
            if not slot.spec.trained:
                at -= layout.trained_size
            places[slot.spec.name] = ParameterPlace(at, slot.spec.shape, slot.spec.trained)
        self.parameters = places
        self._network = network
        self._program = Program()
        self._constants: list[Any] = []
        self._arrays: dict[object, ProgramValue] = {}
        shape = (network.problem.window_steps, network.problem.channels)
        self._measured: ProgramValue | None = None
        if not measured:
            self.windows = self._made("windows", [], *shape)
            return
        samples = math.prod(shape) * reads_samples
        row = self.windows = self._made("windows", [], 1, samples + measured)
        if reads_samples:
            self.windows = self.reshape(self.cut(row, 2, 0, samples), shape)
        self._measured = self.reshape(self.cut(row, 2, samples, samples + measured), [measured])

    def written(self) -> CompiledNetwork:
        """Return the network's whole program."""
        self._network.logits(self, self.windows)
        constants = np.concatenate([np.zeros(0, np.float32), *self._constants])
        return CompiledNetwork(self._program.words, constants)

    def _made(self, operation: str, inputs: Sequence[ProgramValue], *operands: int) -> ProgramValue:
        numbers = [value.number for value in inputs]
        return ProgramValue(self, self._program.add(operation, numbers, *operands))

    def _constant(self, array: Any) -> int:
        """Return where the array lies among the constants."""
        at = sum(int(other.size) for other in self._constants)
        self._constants.append(np.asarray(array, np.float32).ravel())
        return at

    def _array(self, content: Any) -> ProgramValue:
        """Return statistics or a number as a tensor, made once."""
        if content not in self._arrays:
            if isinstance(content, ParameterPlace):
                operands = (content.at, 0, content.shape[0])
            else:
                operands = (self._constant([content]), 1, 1)
            self._arrays[content] = self._made("array", [], *operands)
        return self._arrays[content]

    def binary(self, sign: str, first: ProgramValue, second: Any) -> ProgramValue:
        """Put the sign between a tensor and another one, statistics or a number."""
        if not isinstance(second, ProgramValue):
            second = self._array(second)
        return self._made("binary", [first, second], SIGNS.index(sign))

    def dense(self, inputs: ProgramValue, kernel: Any, bias: ParameterPlace | None) -> ProgramValue:
        """Multiply with a parameter, or with constants."""
        if isinstance(kernel, ParameterPlace):
            start = NOWHERE if bias is None else bias.at
            return self._made("dense", [inputs], kernel.at, start, kernel.shape[1], 0)
        operands = (self._constant(kernel), NOWHERE, kernel.shape[1], 1)
        return self._made("dense", [inputs], *operands)

    def convolution(
        self, inputs: ProgramValue, kernel: Any, bias: ParameterPlace, stride: int
    ) -> ProgramValue:
        """Convolve, then add the bias."""
        taps, _, outputs = kernel.shape
        return self._made("convolution", [inputs], kernel.at, bias.at, taps, outputs, stride)

    def sequence(self, windows: ProgramValue) -> ProgramValue:
        """Put the steps first."""
        return self._made("sequence", [windows])

    def lstm(self, sequence: ProgramValue, cells: Sequence[Any]) -> ProgramValue:
        """Add an instruction a cell."""
        outputs = [
            self._made(
                "lstm", [sequence], cell.kernel.at, cell.bias.at, cell.hidden, int(cell.backward)
            )
            for cell in cells
        ]
        if len(outputs) == 1:
            return outputs[0]
        return self.concat(outputs, 2)

    def at(self, sequence: ProgramValue, step: int) -> ProgramValue:
        """Take one step."""
        return self._made("at", [sequence], step)

    def ends(self, sequence: ProgramValue, half: int) -> ProgramValue:
        """Take the state that each direction of a bi-LSTM ends in."""
        forward = self.cut(self.at(sequence, -1), 1, 0, half)
        backward = self.cut(self.at(sequence, 0), 1, half, 2 * half)
        return self.concat([forward, backward], 1)

    def averaged(self, sequence: ProgramValue) -> ProgramValue:
        """Average over the steps."""
        return self._made("averaged", [sequence])

    def layer_norm(
        self, inputs: ProgramValue, scale: ParameterPlace, shift: ParameterPlace, epsilon: float
    ) -> ProgramValue:
        """Normalize over the features."""
        return self._made("layer_norm", [inputs], scale.at, shift.at, bits(epsilon))

    def window_norm(self, windows: ProgramValue, epsilon: float) -> ProgramValue:
        """Normalize over the steps."""
        return self._made("window_norm", [windows], bits(epsilon))

    def step_norm(self, name: str, sequence: ProgramValue, epsilon: float) -> ProgramValue:
        """Normalize each step over a group of windows and its features."""
        names = ("scale", "shift", "mean", "variance")
        places = [self.parameters[f"{name}/{part}"].at for part in names]
        return self._made("step_norm", [sequence], *places, bits(epsilon))

    def dropout(self, inputs: ProgramValue, keep_probability: float, site: int) -> ProgramValue:
        """Drop by counters: the seed, the window's row in its batch, the site, the element."""
        if keep_probability == 1.0:
            return inputs
        return self._made("dropout", [inputs], bits(keep_probability), site)

    def from_windows(self, compute: Callable[[], ProgramValue]) -> ProgramValue:
        """Take the numbers from the input, or compute them and stop the gradient."""
        if self._measured is not None:
            return self._measured
        return self._made("stopped", [compute()])

    def unary(self, operation: str, inputs: ProgramValue) -> ProgramValue:
        """Apply the operation."""
        if operation == "square":
            return inputs * inputs
        return self._made("unary", [inputs], UNARIES.index(operation))

    def reduce(
        self, operation: str, inputs: ProgramValue, axis: int, *, keep_axis: bool = False
    ) -> ProgramValue:
        """Reduce."""
        sign = SIGNS.index(REDUCTIONS[operation])
        return self._made("reduce", [inputs], sign, axis, int(keep_axis), int(operation == "mean"))

    def lagged(self, inputs: ProgramValue, steps: int, lag: int) -> ProgramValue:
        """Average the products of neighbours so far apart."""
        del steps
        return self._made("lagged", [inputs], lag)

    def add_n(self, tensors: Sequence[ProgramValue]) -> ProgramValue:
        """Add one after the other."""
        total, *addends = tensors
        for addend in addends:
            total = total + addend
        return total

    def clip(self, inputs: ProgramValue, low: float, high: float) -> ProgramValue:
        """Clip."""
        return self.binary("max", self.binary("min", inputs, high), low)

    def cut(self, inputs: ProgramValue, axis: int, begin: int, end: int) -> ProgramValue:
        """Slice."""
        return self._made("cut", [inputs], axis, begin, end)

    def concat(self, tensors: Sequence[ProgramValue], axis: int) -> ProgramValue:
        """Concatenate."""
        return self._made("concat", tensors, axis)

    def reshape(self, inputs: ProgramValue, shape: Sequence[int]) -> ProgramValue:
        """Reshape."""
        return self._made("reshape", [inputs], *shape)

    def transpose(self, inputs: ProgramValue, order: Sequence[int]) -> ProgramValue:
        """Transpose; the batch stays first."""
        return self._made("transpose", [inputs], *order[1:])
