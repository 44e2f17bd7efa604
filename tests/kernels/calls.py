"""Calls of the library with every built-in network and with damaged ones, and its answers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from kernels.library import UnfitProgramError
from tests.kernels.networks import MODELS, SLOTS, Case, bytes_of

CASES = [Case(name, 0.8) for name in MODELS]
WORDS = (*range(-3, 25), 127, 2**31 - 1, -(2**31))
"""What a damaged program has in the place of some of its words."""


@dataclass(frozen=True)
class Called:
    """A call of the library with a range of a case's slots."""

    case: Case
    slots: tuple[int, int] = (0, SLOTS)
    apart: bool = False

    @property
    def record(self) -> bytes:
        """The call as `check` reads it."""
        case = self.case
        return case.record(self.slots, self.apart, case.part(*self.slots), case.recipe)

    @cached_property
    def answer(self) -> bytes:
        """What the committed library computes, or the line of its refusal."""
        try:
            return bytes_of(self.case.sums(self.slots, apart=self.apart))
        except UnfitProgramError as refusal:
            return f"refused: {refusal}\n".encode()


def sound() -> Iterator[Called]:
    """Yield calls of every built-in network: all slots, no subtree of them, and all apart."""
    for case in CASES:
        group = case.recipe.group
        yield from (Called(case), Called(case, (group, SLOTS - group)), Called(case, apart=True))


def damaged(each: int) -> Iterator[Called]:
    """Yield calls with so many damaged programs of every built-in network."""
    draws = np.random.default_rng(17)
    for case in CASES * each:
        words = np.array(case.written.words)
        words[draws.integers(0, len(words), 2)] = draws.choice(WORDS, 2)
        # Mostly all of them.
        yield Called(replace(case, words=words[: draws.integers(5 * len(words))].tolist()))
