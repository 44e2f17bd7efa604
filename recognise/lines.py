"""Readings as lines of text: `t,ax,ay,az,gx,gy,gz`, from a file or from standard input.

A line that is no reading is reported and skipped. A line's length is bounded, so is what is kept between two blocks.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COLUMNS = ("t", "ax", "ay", "az", "gx", "gy", "gz")
"""Seconds; acceleration; angular velocity."""
LONGEST_LINE_BYTES = 4096
_SHOWN = 60


@dataclass(frozen=True)
class Block:
    """Readings, float64 (n, 7) in the order of COLUMNS, and what was wrong with other lines: number and reason.

    share: how much of the recording has been read with this block, 0 to 1; 0 where its length is unknown.
    """

    readings: NDArray[np.float64]
    problems: tuple[tuple[int, str], ...]
    share: float = 0.0


class Lines:
    """State: the number of the next line, the unfinished last line, and the order of the columns."""

    def __init__(self) -> None:
        self._rest = b""
        self._skipping = False
        self._number = 0
        self._order = tuple(range(len(COLUMNS)))
        self._first = True

    def take(self, content: bytes) -> Block:
        """The readings of the next bytes."""
        *whole, rest = (self._rest + content).split(b"\n")
        problems: list[tuple[int, str]] = []
        readings = [found for line in whole if (found := self._reading(line, problems)) is not None]
        self._rest = rest
        if len(rest) > LONGEST_LINE_BYTES:
            # The line is not complete: what is kept stays small, and its end is not taken for a reading.
            self._rest, self._skipping = b"", True
        return _block(readings, problems)

    def end(self) -> Block:
        """The last line, where no newline ends it."""
        rest, self._rest = self._rest, b""
        problems: list[tuple[int, str]] = []
        found = self._reading(rest, problems) if rest or self._skipping else None
        return _block([] if found is None else [found], problems)

    def _reading(self, line: bytes, problems: list[tuple[int, str]]) -> list[float] | None:
        self._number += 1
        if self._skipping or len(line) > LONGEST_LINE_BYTES:
            self._skipping = False
            problems.append((self._number, f"expected {','.join(COLUMNS)}, got more than {LONGEST_LINE_BYTES} bytes"))
            return None
        words = [word.strip() for word in line.decode("utf-8", "replace").lstrip("\ufeff").split(",")]
        if words == [""]:
            return None
        first, self._first = self._first, False
        try:
            if len(words) != len(COLUMNS):
                raise ValueError
            return [float(words[place]) for place in self._order]
        except ValueError:
            names = tuple(word.lower() for word in words)
            if first and sorted(names) == sorted(COLUMNS):
                self._order = tuple(names.index(name) for name in COLUMNS)
                return None
            shown = ",".join(words)
            problems.append((self._number, f"expected seven numbers {','.join(COLUMNS)}, got {shown[:_SHOWN]!r}"))
            return None


def _block(readings: list[list[float]], problems: list[tuple[int, str]]) -> Block:
    return Block(np.array(readings, np.float64).reshape(-1, len(COLUMNS)), tuple(problems))


def rate_of(times: NDArray[np.float64]) -> float | None:
    """Readings a second, by the median of the times between them; None for less than three."""
    steps = np.diff(times[np.isfinite(times)])
    middle = float(np.median(steps[steps > 0])) if (steps > 0).sum() > 1 else 0.0
    return 1.0 / middle if middle > 0 and math.isfinite(1.0 / middle) else None
