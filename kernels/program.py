"""Programs: networks in the instructions of the library, `native/program.h`."""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass

OPERATIONS = (
    "windows",
    "array",
    "dense",
    "convolution",
    "sequence",
    "lstm",
    "at",
    "averaged",
    "layer_norm",
    "window_norm",
    "step_norm",
    "dropout",
    "stopped",
    "unary",
    "reduce",
    "binary",
    "cut",
    "concat",
    "reshape",
    "transpose",
    "lagged",
)
"""Operations in the library's order: the place of a name is its code."""
UNARIES = ("relu", "absolute", "sqrt", "log1p")
SIGNS = ("+", "-", "*", "/", "max", "min")
REDUCTIONS = {"sum": "+", "mean": "+", "max": "max", "min": "min"}
"""Sign that each one puts between its numbers."""
NOWHERE = -1
"""Offset in place of a bias that a product does not have."""


def bits(number: float) -> int:
    """Return the word that a float32 is in a program."""
    (word,) = struct.unpack("<i", struct.pack("<f", number))
    return int(word)


@dataclass(frozen=True)
class Instruction:
    """One operation over the values with the numbers `inputs`."""

    operation: str
    inputs: Sequence[int]
    operands: Sequence[int]

    @property
    def words(self) -> list[int]:
        """Return it as the library reads it."""
        body = [*self.inputs, *self.operands]
        if self.operation == "concat":
            body = [*self.operands, *self.inputs]
        return [OPERATIONS.index(self.operation), 2 + len(body), *body]


class Program:
    """A list of instructions; the number of an instruction is that of the value that it makes."""

    def __init__(self) -> None:
        self._instructions: list[Instruction] = []

    @property
    def words(self) -> list[int]:
        """Return all instructions, one behind the other."""
        return [word for instruction in self._instructions for word in instruction.words]

    @property
    def result(self) -> int:
        """Return the number of the last value."""
        return len(self._instructions) - 1

    def add(self, operation: str, inputs: Sequence[int], *operands: int) -> int:
        """Add an instruction over the values `inputs`; return the number of its own."""
        self._instructions.append(Instruction(operation, inputs, operands))
        return self.result

    def up_to(self, result: int) -> Program:
        """Return the program that ends with the value `result`, without what it does not need."""
        program = Program()
        program.add("windows", [], *self._instructions[0].operands)
        self._copy(program, result, {0: 0})
        return program

    def from_value(self, value: int, count: int) -> tuple[Program, bool]:
        """Return the program that begins with `value`, (count,), and whether it reads windows.

        Each row of its input is one step: the samples of the window where it reads them, then the
        numbers of `value`.
        """
        shape = self._instructions[0].operands
        samples = math.prod(shape)
        reads_windows = 0 in self._needed(self.result, {value})
        if not reads_windows:
            samples = 0
        program = Program()
        program.add("windows", [], 1, samples + count)
        places = {}
        for number, begin, end, own_shape in (
            (0, 0, samples, shape),
            (value, samples, samples + count, (count,)),
        ):
            if begin < end:
                part = program.add("cut", [0], 2, begin, end)
                places[number] = program.add("reshape", [part], *own_shape)
        self._copy(program, self.result, places)
        return program, reads_windows

    def _needed(self, result: int, ready: Collection[int]) -> set[int]:
        """Return the values that `result` is made of, down to those that are `ready`."""
        needed = {result}
        for number in range(result, 0, -1):
            if number in needed and number not in ready:
                needed.update(self._instructions[number].inputs)
        return needed

    def _copy(self, program: Program, result: int, places: dict[int, int]) -> None:
        """Add what `result` needs to a program that has some values at `places`."""
        for number in sorted(self._needed(result, places)):
            if number not in places:
                instruction = self._instructions[number]
                inputs = [places[value] for value in instruction.inputs]
                places[number] = program.add(instruction.operation, inputs, *instruction.operands)
