"""What the figures of a file's columns prove: times and their unit, vectors, words, one source.

A source is a device, a sensor or a clock.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from core.data.arrays import Numbers
from core.data.described.description import AXES
from core.data.described.moments import is_of_day, moment_of, patterns_of, seconds_of
from core.data.described.sheet import MOST_SOURCES, Sheet
from core.data.recordings import is_missing, is_number, number
from core.ground.plausible import LEAST_HZ, MOST_HZ, UNITS_OF_TIME, mean_magnitude

LEAST_ROWS = 16
MOSTLY_CHANGING = 0.5
"""The share of rows at which words change that say a source."""
SOMETIMES = 0.05
"""The share of such rows where values jump with the word: no label changes so often."""
JUMP = 1.5
"""The factor by which values of two sources are farther apart than those of one that follow."""
PERIODIC = 0.9
DOUBLED = 0.05
"""The share of readings that may have the time of the one before, and other values."""
LONG = 2.0
"""Factor of the usual step from which it is a pause."""


def says_source(cells: Sequence[str], values: Numbers) -> bool:
    """Whether a column says of which source each reading is; values are (n, channels).

    It has few words that change from row to row. Numbers may count, so that theirs have an order,
    and the values of one follow each other more closely.
    """
    if len(cells) < LEAST_ROWS or not 2 <= len({*cells}) <= MOST_SOURCES or "" in cells:
        return False
    names, codes = np.unique(np.array(cells), return_inverse=True)
    changes = np.diff(codes) != 0
    share = float(changes.mean())
    if share < SOMETIMES:
        return False
    are_numbers = all(map(is_number, names))
    if not values.size:
        return share >= MOSTLY_CHANGING and not are_numbers
    steps_of_sources = [
        np.abs(np.diff(values[codes == code], axis=0)) for code in range(len(names))
    ]
    within = float(np.concatenate(steps_of_sources).mean())
    jump = float(np.abs(np.diff(values, axis=0))[changes].mean())
    if are_numbers:
        period = codes[len(names) :] == codes[: -len(names)]
        return float(period.mean()) >= PERIODIC and jump > JUMP * within
    return share >= MOSTLY_CHANGING or jump > 2 * JUMP * within


def doubled(times: Numbers, values: Numbers) -> int:
    """Return how many readings have the time of the one before, and other values."""
    return int(((np.diff(times) == 0) & (np.diff(values, axis=0) != 0).any(axis=1)).sum())


def spread(times: Numbers) -> Numbers:
    """Return times of which those that are equal lie evenly up to the next one, or to a pause."""
    starts = np.flatnonzero(np.diff(times, prepend=np.nan) != 0)
    if len(starts) < 2:
        return times
    steps = np.diff(times[starts])
    usual = float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0
    steps = np.append(np.where((steps > 0) & (steps <= LONG * usual), steps, usual), usual)
    counts = np.diff(np.append(starts, len(times)))
    place = np.arange(len(times)) - np.repeat(starts, counts)
    even_times: Numbers = times + place * np.repeat(steps / counts, counts)
    return even_times


MOST_CLASSES = 50
SHOWN = 3
MOSTLY = 0.9
"""The share of values that are numbers, in a column of numbers: lines may be damaged."""
_RISING = 0.9
"""The share of steps that must not fall, and half of it those that must rise, in a column of
times."""
_TIME_NAME = re.compile(r"time|stamp|date|second|millis|^t$", re.IGNORECASE)
_UNIT_NAMES: Mapping[str, str] = {
    "g": "g",
    "mg": "mg",
    **dict.fromkeys(("m/s2", "m/s^2", "m/s²"), "m/s2"),
    "rad/s": "rad/s",
    **dict.fromkeys(("deg/s", "°/s", "dps"), "deg/s"),
    **dict.fromkeys(("uT", "µT", "μT"), "uT"),
    "mT": "mT",
    "gauss": "gauss",
}
"""Units that a name has in brackets. `G` is not among them: gauss to one app, g to another."""


@dataclass(frozen=True)
class ColumnLook:
    """One column: its name, its first different values, and its numbers, (n,), if it has some.

    units: of time that it can be in, where it rises as times do. hertz: its readings a second in
    the one unit that is possible, else None. stray_words: among its numbers. patterns: by which it
    may be written. doubles: the share of moments that the one before has, too. is_source: whether
    it says of which device or sensor a reading is.
    """

    name: str
    samples: Sequence[str]
    different: int
    numbers: Numbers | None
    units: Sequence[str] = ()
    hertz: float | None = None
    stray_words: Sequence[str] = ()
    patterns: Sequence[str] = ()
    doubles: float = 0.0
    is_source: bool = False

    @property
    def is_time(self) -> bool:
        """Whether it may be the time: it rises, and one unit can be or its name is a time's."""
        return (
            bool(self.patterns)
            or len(self.units) == 1
            or bool(self.units and _TIME_NAME.search(self.name))
        )

    @property
    def falls(self) -> bool:
        """Whether it may be the time of readings of which the newest is first."""
        if self.numbers is None or not _TIME_NAME.search(self.name):
            return False
        return _rises(-np.diff(self.numbers[np.isfinite(self.numbers)]), _RISING / 2)

    @property
    def unit_of_time(self) -> str:
        """The units of time that it can be in, for a person."""
        return " or ".join(self.units) if self.is_time else ""

    @property
    def may_say_what(self) -> bool:
        """Whether it may say who, or what was done: words, or few whole numbers."""
        if self.numbers is None or self.is_source:
            return self.different > 0 and not self.is_source
        finite = self.numbers[np.isfinite(self.numbers)]
        return self.different <= MOST_CLASSES and not (finite % 1).any()

    @property
    def line(self) -> str:
        """Return what a person recognizes it by."""
        samples = ", ".join(self.samples)
        return f"{self.name} ({samples}{', ...' if self.different > len(self.samples) else ''})"


def columns_of(sheet: Sheet) -> Sequence[ColumnLook]:
    """Look at every column."""
    looks = [look_at(name, sheet.column(at)) for at, name in enumerate(sheet.names)]
    return [
        replace(column, is_source=says_source(sheet.column(at), _others(looks, at)))
        for at, column in enumerate(looks)
    ]


def _others(looks: Sequence[ColumnLook], at: int) -> Numbers:
    """Return the numbers of all other columns, (n, columns)."""
    numbers = [
        column.numbers
        for place, column in enumerate(looks)
        if column.numbers is not None and place != at and not column.is_time
    ]
    return np.nan_to_num(np.stack(numbers, axis=1)) if numbers else np.zeros((0, 1))


def look_at(name: str, cells: Sequence[str]) -> ColumnLook:
    """Look at one column, whose cells have no blanks around them."""
    different_cells = list(dict.fromkeys(cell for cell in cells if not is_missing(cell)))
    samples = [word[:24] for word in different_cells[:SHOWN]]
    numbers = np.array(list(map(number, cells)))
    finite = numbers[np.isfinite(numbers)]
    if different_cells and len(finite) >= MOSTLY * sum(not is_missing(cell) for cell in cells):
        steps = np.diff(finite)
        rates = {}
        if _rises(steps, 0.0 if _TIME_NAME.search(name) else _RISING / 2):
            rates = {unit: _rate(steps * factor) for unit, factor in UNITS_OF_TIME.items()}
        units = [unit for unit, rate in rates.items() if LEAST_HZ <= rate <= MOST_HZ]
        return ColumnLook(
            name,
            samples,
            len(different_cells),
            numbers,
            units,
            hertz=rates[units[0]] if len(units) == 1 else None,
            stray_words=[word[:24] for word in different_cells if not np.isfinite(number(word))][
                :SHOWN
            ],
            doubles=float((steps == 0).mean()) if len(steps) else 0.0,
        )
    column = ColumnLook(name, samples, len(different_cells), None)
    for pattern in (None, *patterns_of(different_cells[0])) if different_cells else ():
        steps = _steps(cells, pattern)
        if _rises(steps, 0.0):
            doubles = float((steps == 0).mean())
            column = replace(column, hertz=_rate(steps), doubles=doubles)
            if pattern is None:
                return replace(column, units=("iso",))
            column = replace(column, patterns=(*column.patterns, pattern))
    return column


def _steps(cells: Sequence[str], pattern: str | None) -> Numbers:
    """Return the seconds between moments; none where some are not written so."""
    try:
        if not all(":" in cell for cell in cells):
            return np.zeros(0)
        moments = [moment_of(cell, pattern) for cell in cells]
        return np.diff([seconds_of(moment, None, of_day=is_of_day(pattern)) for moment in moments])
    except ValueError:
        return np.zeros(0)


def _rises(steps: Numbers, least: float) -> bool:
    """Whether few steps fall, and more than the `least` share rise."""
    return (
        len(steps) > 1
        and float((steps >= 0).mean()) >= _RISING
        and float((steps > 0).mean()) > least
    )


def _rate(steps: Numbers) -> float:
    """Return the readings a second, of which several may have one time."""
    rising = steps > 0
    return 1.0 / (float(np.median(steps[rising])) * float(rising.mean()))


def triples(columns: Sequence[ColumnLook]) -> Mapping[str, Sequence[ColumnLook]]:
    """Return the columns of three axes, by the name that they have in common."""
    groups: dict[tuple[str, str], dict[str, ColumnLook]] = defaultdict(dict)
    for column in columns:
        for at, letter in enumerate(column.name.lower()):
            if letter in AXES and column.numbers is not None:
                groups[column.name[:at], column.name[at + 1 :]].setdefault(letter, column)
    vectors: dict[str, Sequence[ColumnLook]] = {}
    for (before, after), group in groups.items():
        if len(group) == len(AXES):
            common = re.sub(r"[(\[].*?[)\]]", "", f"{before} {after}")
            plain = re.sub(r"[\W_]+", "_", common).strip("_").lower() or "xyz"
            name = plain
            while name in vectors:
                name = f"{plain}_{len(vectors)}"
            vectors[name] = [group[axis] for axis in AXES]
    return vectors


def unit_in(name: str) -> str | None:
    """Return the unit that a column's name has in brackets; None where it has none that we know."""
    match = re.search(r"[(\[]([^)\]]+)[)\]]", name)
    return None if match is None else _UNIT_NAMES.get(match[1].strip())


def length_of(columns: Sequence[ColumnLook]) -> float:
    """Return the mean length of the vectors that three columns hold."""
    values = np.stack([column.numbers for column in columns if column.numbers is not None], axis=1)
    whole = values[np.isfinite(values).all(axis=1)]
    return mean_magnitude(whole) if len(whole) else 0.0
