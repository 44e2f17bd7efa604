"""Whether readings are in the units that they claim: the one judge, at every way in.

The magnitude of what an accelerometer and a gyroscope gave decides, for each recording by itself;
where no recordings are known, for each person.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.data.recordings import NO_SUBJECT
from core.data.signals import ACCELERATION, KIND_UNITS, SIZE_PROBLEMS, Sensor, Signals
from core.errors import DataError
from core.plausible import axis_problem, direction_problem, mean_magnitude

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
        """Windows, their sizes, the lengths of their means and the differences of their axes."""

    def take(self, whose: str, windows: NDArray[np.generic]) -> None:
        """Look at some windows of a recording too, (n, ..., channels)."""
        count = len(windows)
        for sensor, places in self._places.items():
            values = windows[..., places].astype(np.float64).reshape(count, -1, 3)
            size = count * mean_magnitude(values)
            direction = np.linalg.norm(values.mean(axis=1), axis=1).sum()
            self._add(whose, sensor, count, size, direction, np.ptp(values, axis=-1).sum())
        for place in self._alone:
            size = count * np.abs(windows[..., place].astype(np.float64)).mean()
            self._add(whose, place, count, size, 0.0, 0.0)

    def _add(self, whose: str, what: Sensor | int, *sums: float) -> None:
        self._sums[whose, what] = self._sums.get((whose, what), 0.0) + np.array(sums)

    def take_people(
        self, windows: NDArray[np.generic], subjects: NDArray[np.integer] | None
    ) -> None:
        """Look at windows of which no recording is known, and at who was recorded, (n,)."""
        if not self._places and not self._alone:
            return
        if subjects is None:
            subjects = np.full(len(windows), NO_SUBJECT)
        for subject in np.unique(subjects):
            whose = ""
            if subject != NO_SUBJECT:
                whose = f"subject {subject}"
            self.take(whose, windows[subjects == subject])

    def problems(self) -> Iterator[Implausible]:
        """Yield what is wrong, recording by recording."""
        for (whose, what), sums in self._sums.items():
            size, direction, differences = (sums[1:] / sums[0]).tolist()
            if isinstance(what, int):
                unit = self._alone[what]
                wrong = axis_problem(size, unit)
                name = self._signals.channels[what]
                give = f"it in {unit}"
            else:
                wrong = SIZE_PROBLEMS[what.kind](size)
                if wrong is None and what.kind == ACCELERATION:
                    wrong = direction_problem(direction)
                if wrong is None and not differences:
                    wrong = "x, y and z are equal in every reading; are they one column?"
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
