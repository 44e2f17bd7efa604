"""Whether readings are in the units that they claim: the one judge, at every way in.

The magnitude of what an accelerometer and a gyroscope gave decides, for each recording by itself;
where no recordings are known, for each person.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.data.recordings import NO_SUBJECT, Recordings
from core.data.signals import ACCELERATION, KIND_UNITS, ROTATION, SIZE_PROBLEMS, Sensor, Signals
from core.errors import DataError
from core.plausible import axis_problem, direction_problem

MOST_ODD = 0.1
"""The share of a recording's windows whose own size no sensor has: a unit that changes within it,
or a sensor that was dead for a while."""
LEAST_STEPS = 50
"""A shorter window may be one impact, or a flight: it is not judged by itself."""
_AT_ONCE = 4096

Sums = NDArray[np.float64]


@dataclass(frozen=True)
class Implausible:
    """What a recording has wrong: the sensor or channel, its mean size, why, and what to give."""

    whose: str
    name: str
    size: float
    wrong: str
    give: str


class UnitsLook:
    """Takes windows, some at a time, and says which recordings cannot be in g and rad/s.

    Sensors are found as the signals state them, those of the nine by name. Others, and those in
    other units by their own word, are passed: nothing is known of them.
    """

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._places = signals.judged
        self._alone = signals.judged_alone
        self._sums: dict[tuple[str, Sensor | int], Sums] = {}
        """Windows, their sizes, lengths of their means and differences of their axes; how many are
        whole, how many of these are odd, and the sizes of the odd ones."""

    def take(self, whose: str, windows: NDArray[np.generic], *, whole: bool = True) -> None:
        """Look at some windows of a recording too, (n, ..., channels).

        `whole` ones are long enough to be judged each by itself.
        """
        for sensor, places in self._places.items():
            values = windows[..., places].astype(np.float64).reshape(len(windows), -1, 3)
            sizes = np.linalg.norm(values, axis=-1).mean(axis=1)
            judge = SIZE_PROBLEMS[sensor.kind]
            # A gyroscope at rest may round to 0.
            least = 0.0 if sensor.kind == ROTATION else -1.0
            odd = [size for size in sizes.tolist() if whole and size > least and judge(size)]
            sums = [
                len(sizes),
                sizes.sum(),
                np.linalg.norm(values.mean(axis=1), axis=1).sum(),
                np.ptp(values, axis=-1).sum(),
                whole * len(sizes),
                len(odd),
                sum(odd),
            ]
            self._sums[whose, sensor] = self._sums.get((whose, sensor), 0.0) + np.array(sums)
        for place in self._alone:
            sums = [
                len(windows),
                np.abs(windows[..., place].astype(np.float64)).mean() * len(windows),
            ]
            self._sums[whose, place] = self._sums.get((whose, place), 0.0) + np.array(sums)

    def take_people(
        self, windows: NDArray[np.generic], subjects: NDArray[np.integer] | None
    ) -> None:
        """Look at windows of which no recording is known, and at who was recorded, (n,)."""
        if not self._places and not self._alone:
            return
        if subjects is None:
            subjects = np.full(len(windows), NO_SUBJECT)
        is_whole = windows.ndim > 2 and windows.shape[1] >= LEAST_STEPS
        for subject in np.unique(subjects):
            whose = ""
            if subject != NO_SUBJECT:
                whose = f"subject {subject}"
            self.take(whose, windows[subjects == subject], whole=is_whole)

    def problems(self) -> Iterator[Implausible]:
        """Yield what is wrong, recording by recording."""
        for (whose, what), sums in self._sums.items():
            if isinstance(what, int):
                unit = self._alone[what]
                size = float(sums[1] / sums[0])
                wrong = axis_problem(size, unit)
                name = self._signals.channels[what]
                give = f"it in {unit}"
            else:
                size, wrong = _judged(what, *sums.tolist())
                name = what.name
                names = what.channels
                give = f"{names[0]} to {names[-1]} in {KIND_UNITS[what.kind]}"
                give += _ALSO.get(what.kind, "")
            if wrong is not None:
                yield Implausible(whose, name, size, wrong, give)

    def refuse(self, where: str) -> None:
        """Raises DataError for the first recording that is not plausible."""
        for one in self.problems():
            parts = [where, one.whose, one.name, ended(one.wrong)]
            raise DataError(
                f"{': '.join(filter(None, parts))} Give {one.give}, or leave the recordings out"
            )


def ended(wrong: str) -> str:
    """Return what is wrong as a sentence, which a question is already."""
    if wrong.endswith("?"):
        return wrong
    return f"{wrong}."


_ALSO = {ACCELERATION: ", gravity included"}


def _judged(
    sensor: Sensor,
    windows: float,
    sizes: float,
    lengths: float,
    differences: float,
    whole: float,
    odd: float,
    odd_sizes: float,
) -> tuple[float, str | None]:
    """Return a mean size, and what is wrong with it, with the direction or with some windows."""
    size = sizes / windows
    judge = SIZE_PROBLEMS[sensor.kind]
    wrong = judge(size)
    if wrong is None and sensor.kind == ACCELERATION:
        wrong = direction_problem(lengths / windows)
    if wrong is None and not differences:
        wrong = "x, y and z are equal in every reading; are they one column?"
    if wrong is None and odd > MOST_ODD * whole:
        size = odd_sizes / odd
        wrong = f"{odd:,.0f} of {whole:,.0f} parts: {judge(size) or 'sizes of no sensor'}"
    return size, wrong


def refuse_implausible(recordings: Recordings, where: str) -> Recordings:
    """Return the recordings, if `UnitsLook` has nothing against them. Raises DataError."""
    look = UnitsLook(recordings.signals)
    for start in range(0, len(recordings.windows), _AT_ONCE):
        rows = slice(start, start + _AT_ONCE)
        look.take_people(recordings.windows[rows], recordings.subjects[rows])
    look.refuse(where)
    return recordings
