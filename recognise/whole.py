"""A long recording in a file: looked at first, then read in blocks as windows and faults; memory is bounded."""

import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster.data.filters import CausalFilters
from cluster.data.filters_in_blocks import TwoWayInBlocks
from cluster.data.recordings import CAUSAL
from cluster.errors import DataError, reason_of
from recognise.lines import COLUMNS, Block, rate_of
from recognise.npz_recording import ARRAYS
from recognise.recordings import blocks_of, is_windows
from recognise.stream import Fault, Settings, Stream, Window
from recognise.stream.resampling import FASTER
from recognise.stream.settings import ACCELERATION_UNITS
from recognise.stream.stream import MOST_READINGS, PLAUSIBLE_G, SPARSE

FIRST_LOOK = 4096
"""Readings that the first look is at."""
MOST_SHOWN = 10
"""Bad lines that are kept for messages; all are counted."""


@dataclass
class ReadSoFar:
    """How far the reading is. share: of the recording, 0 to 1; bad_lines: lines that are no reading."""

    share: float = 0.0
    readings: int = 0
    bad_lines: int = 0
    shown: list[str] = field(default_factory=list)


class LongRecording:
    """One file. `items` reads it once, from its beginning."""

    def __init__(self, name: str, settings: Settings, direction: str) -> None:
        """`direction`: of the filters, `two-way` or `causal`. Raises DataError for what cannot be labelled."""
        self.name, self.progress = name, ReadSoFar()
        self._direction = direction
        _refuse_other_files(name)
        self.settings = _fitting(name, _first(name), settings)

    def items(self) -> Iterator[Window | Fault]:
        """Windows and faults in the order of the readings. Raises DataError."""
        stream = Stream(self.settings, CausalFilters if self._direction == CAUSAL else TwoWayInBlocks)
        for block in blocks_of(self.name):
            self._count(block)
            for start in range(0, len(block.readings), MOST_READINGS):
                rows = block.readings[start : start + MOST_READINGS]
                yield from stream.push(rows[:, 0], rows[:, 1:4], rows[:, 4:])
        yield from stream.end()

    def _count(self, block: Block) -> None:
        progress = self.progress
        progress.share = max(progress.share, block.share)
        progress.readings += len(block.readings)
        progress.bad_lines += len(block.problems)
        room = MOST_SHOWN - len(progress.shown)
        progress.shown += [f"{self.name}:{number}: {reason}" for number, reason in block.problems[:room]]


def _refuse_other_files(name: str) -> None:
    try:
        about = Path(name).stat()
    except (OSError, ValueError) as problem:
        reason = reason_of(problem)
        raise DataError(f"{name}: cannot be read ({reason}); name a recording with --data") from None
    if not stat.S_ISREG(about.st_mode):
        raise DataError(f"{name}: expected a file with a recording, got another kind; name one with --data")
    if is_windows(name):
        raise DataError(
            f"{name}: expected a recording, {', '.join(ARRAYS)}, got an .npz without {ARRAYS[0]}; "
            f"`python -m recognise` labels windows that are cut already"
        )


def _first(name: str) -> NDArray[np.float64]:
    """The first readings. Raises DataError if there are none."""
    found, problem = [np.empty((0, len(COLUMNS)))], ""
    for block in blocks_of(name):
        found.append(block.readings)
        problem = problem or next((reason for _, reason in block.problems), "")
        if sum(map(len, found)) >= FIRST_LOOK:
            break
    rows = np.concatenate(found)[:FIRST_LOOK]
    rows = rows[np.isfinite(rows).all(axis=1)]
    if len(rows) < 3:
        said = problem or f"{len(rows)} readings without a NaN"
        raise DataError(f"{name}: expected a recording, a reading a line, {','.join(COLUMNS)}; got {said}")
    return rows


def _fitting(name: str, rows: NDArray[np.float64], settings: Settings) -> Settings:
    """The settings with the sensor's rate where it is faster. Raises DataError for a wrong rate or unit."""
    hertz = rate_of(rows[:, 0])
    least = settings.sampling_hz / SPARSE
    if hertz is None or hertz < least:
        rate = "times that do not rise" if hertz is None else f"{hertz:.3g} readings a second"
        raise DataError(
            f"{name}: expected at least {least:.0f} readings a second, as the model has {settings.sampling_hz:g}, got "
            f"{rate}; are the times in seconds?"
        )
    scale = ACCELERATION_UNITS[settings.acceleration_unit]
    magnitude = float(np.median(np.linalg.norm(rows[:, 1:4], axis=1))) * scale
    if not PLAUSIBLE_G[0] <= magnitude <= PLAUSIBLE_G[1]:
        others = " or ".join(unit for unit in ACCELERATION_UNITS if unit != settings.acceleration_unit)
        raise DataError(
            f"{name}: expected an acceleration of about 1 g, got {magnitude:.3g} g if the unit is "
            f"{settings.acceleration_unit}; give --acceleration {others}, or another recording"
        )
    return replace(settings, source_hz=min(hertz, 10_000.0) if hertz > FASTER * settings.sampling_hz else None)
