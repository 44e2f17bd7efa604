"""A look at the first readings: a recording in a wrong unit is refused before any label."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from core.data.intake import (
    FASTEST_HZ,
    LARGEST_TIME_SECONDS,
    LARGEST_VALUE,
    SLOWEST_HZ,
    SPARSE,
    rate_of,
    unit_hint,
)
from core.data.signals import ACCELERATION, ROTATION, SIZE_PROBLEMS
from core.ground.errors import DataError
from core.ground.plausible import ACCELERATION_UNITS, ROTATION_UNITS
from recognise.lines import COLUMNS, Block
from recognise.recordings import blocks_of
from recognise.stream import Settings

FIRST_LOOK = 4096
"""Readings that are looked at."""
_FEWEST = 3

Rows = NDArray[np.float64]


@dataclass
class FirstReadings:
    """The first readings, their time first, and the first line that was no reading."""

    chunks: list[Rows] = field(default_factory=list)
    count: int = 0
    problem: str = ""

    def take(self, block: Block) -> None:
        """Add what there is room for."""
        if self.count < FIRST_LOOK:
            self.chunks.append(block.readings[: FIRST_LOOK - self.count])
            self.count += len(self.chunks[-1])
        if not self.problem and block.problems:
            number, reason = block.problems[0]
            self.problem = f"line {number}: {reason}"

    @property
    def rows(self) -> Rows:
        """All readings that were kept, (n, 1 + channels)."""
        if not self.chunks:
            return np.empty((0, len(COLUMNS)))
        return np.concatenate(self.chunks)


def looked_at(name: str, settings: Settings, format_name: str | None = None) -> float:
    """Return the readings a second of the file.

    Raises DataError for a rate, times or a unit that give no label.
    """
    first = FirstReadings()
    for block in blocks_of(name, format_name, settings.signals):
        first.take(block)
        if first.count >= FIRST_LOOK:
            break
    return judged(name, first, settings)


def judged(name: str, first: FirstReadings, settings: Settings) -> float:
    """Return the readings a second of these rows.

    Raises DataError, in one line with the remedy, where they can get no label.
    """
    rows = first.rows
    finite = rows[np.isfinite(rows).all(axis=1)]
    if len(finite) < _FEWEST:
        raise DataError(
            f"{name}: expected a recording, a reading a line, {','.join(_names(settings))}; got"
            f" {_said(first, settings)}"
        )
    if len(finite) < len(rows) / 2:
        raise DataError(
            f"{name}: expected readings of finite numbers, got {len(finite)} in {len(rows)}; repair"
            " the others"
        )
    hertz = rate_of(finite[:, 0])
    _refuse_times(name, finite[:, 0], hertz, settings)
    assert hertz is not None
    reading_signals = settings.readings
    for sensor in reading_signals.sensors:
        if sensor.kind in _UNITS:
            places = [reading_signals.channels.index(channel) for channel in sensor.channels]
            size = _size(finite[:, 1:][:, places])
            _refuse_unit(name, sensor.kind, reading_signals.units[places[0]], size)
    return hertz


_UNITS = {
    ACCELERATION: (ACCELERATION_UNITS, "--acceleration", ", gravity included"),
    ROTATION: (ROTATION_UNITS, "--rotation", ""),
}
"""Units of the sensors that a person may choose, the flag that says one, what else is asked."""


def _refuse_unit(name: str, kind: str, unit: str, size: float) -> None:
    """Raise DataError where values of this median length cannot have this unit."""
    judge = SIZE_PROBLEMS[kind]
    units, flag, included = _UNITS[kind]
    problem = judge(size * units[unit])
    if problem is None:
        return
    if size == 0.0:
        raise DataError(f"{name}: {problem}; record with that sensor")
    remedy = f"convert it to {' or '.join(units)}{included}"
    for other, factor in units.items():
        if judge(size * factor) is None:
            remedy = f"give {flag} {other}"
            break
    raise DataError(f"{name}: {problem} It was taken as {unit}: {remedy}")


def why_nothing(name: str, first: FirstReadings, settings: Settings, fault: str) -> str:
    """Return why a recording got no label, in one line.

    `fault` is the text of the most frequent fault, empty without any.
    """
    try:
        judged(name, first, settings)
    except DataError as problem:
        return str(problem)
    if fault:
        return f"{name}: nothing was labelled: {fault}"
    seconds = settings.window_steps / settings.sampling_hz
    return (
        f"{name}: nothing was labelled: {first.count} readings, and a window has {seconds:.2f} s;"
        " record longer"
    )


def _size(vectors: Rows) -> float:
    """Return the median length of the vectors that are not 0.

    It is 0.0 where all are 0, and infinite where none has the size of a sensor's.
    """
    sane = vectors[(np.abs(vectors) <= LARGEST_VALUE).all(axis=1)]
    if not len(sane):
        return np.inf
    sizes = np.linalg.norm(sane, axis=1)
    if sizes.any():
        return float(np.median(sizes[sizes > 0]))
    return 0.0


def _refuse_times(name: str, times: Rows, hertz: float | None, settings: Settings) -> None:
    least = settings.sampling_hz / SPARSE
    expected = (
        f"{name}: expected at least {least:.0f} readings a second, as the model has"
        f" {settings.sampling_hz:g}, got"
    )
    if hertz is None:
        raise DataError(
            f"{expected} times that do not rise; give each reading its own time in seconds"
        )
    shared = float(np.mean(np.diff(times) == 0))
    if hertz < least and shared > 0.5:
        raise DataError(
            f"{expected} {shared:.0%} of the readings at the time of the one before; give each its"
            " own time in seconds"
        )
    if hertz < least:
        slow = "record with a faster sensor"
        raise DataError(
            f"{expected} {hertz:.3g}; {slow if hertz >= SLOWEST_HZ else unit_hint(1.0 / hertz)}"
        )
    if hertz > FASTEST_HZ:
        raise DataError(
            f"{name}: expected at most {FASTEST_HZ:g} readings a second, got {hertz:.3g};"
            f" {unit_hint(0.0)}"
        )
    if np.abs(times).min() > LARGEST_TIME_SECONDS:
        raise DataError(
            f"{name}: expected times in seconds, got {times[0]:.6g}; count them from the first"
            " reading"
        )


def _names(settings: Settings) -> Sequence[str]:
    """Return the names of a reading's values: those of a plain line where it has no others."""
    if settings.given is None:
        return COLUMNS
    return (COLUMNS[0], *settings.given.channels)


def _said(first: FirstReadings, settings: Settings) -> str:
    if first.problem:
        return first.problem
    rows = first.rows
    missing = [
        name
        for name, column in zip(_names(settings), rows.T, strict=False)
        if len(rows) and not np.isfinite(column).any()
    ]
    if missing:
        return f"no finite number in {', '.join(missing)}{_of_sensor(missing)}"
    return f"{int(np.isfinite(rows).all(axis=1).sum())} readings of finite numbers"


def _of_sensor(missing: Sequence[str]) -> str:
    if set(missing) == set(COLUMNS[4:]):
        return ": no gyroscope"
    return ""
