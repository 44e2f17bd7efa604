"""Programs: networks in the instructions of the library, `native/program.h`."""

import struct
from collections.abc import Sequence

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


class Program:
    """A list of instructions; the number of an instruction is that of the value that it makes."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self._count = 0

    def add(self, operation: str, inputs: Sequence[int], *operands: int) -> int:
        """Add an instruction over the values `inputs`; return the number of its own."""
        code = OPERATIONS.index(operation)
        body = [*inputs, *operands]
        if operation == "concat":
            body = [*operands, *inputs]
        self.words += [code, 2 + len(body), *body]
        self._count += 1
        return self._count - 1
