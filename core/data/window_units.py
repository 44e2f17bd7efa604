"""Whether windows are in the units that they claim.

The magnitude of what an accelerometer and a gyroscope gave decides.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.data.recordings import NO_SUBJECT, Recordings
from core.data.signals import ACCELERATION, KIND_UNITS, SIZE_PROBLEMS, Sensor, Signals
from core.errors import DataError
from core.plausible import axis_problem, direction_problem, mean_magnitude

_AT_ONCE = 4096


@dataclass
class _Sums:
    """Over the windows of one person: how many, and the sums of what is judged of each."""

    windows: int = 0
    size: float = 0.0
    direction: float = 0.0


class UnitsLook:
    """Takes windows, some at a time, and refuses a person whose readings cannot be in g and rad/s.

    Sensors are found as the signals state them, those of the nine by name. Others, and those in
    other units by their own word, are passed: nothing is known of them.
    """

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._places = signals.judged
        self._sums: dict[tuple[int, Sensor], _Sums] = {}
        self._alone = signals.judged_alone
        self._sums_alone: dict[tuple[int, int], _Sums] = {}

    def take(self, windows: NDArray[np.generic], subjects: NDArray[np.integer] | None) -> None:
        """Look at some windows too, (n, ..., channels), and at who was recorded, (n,)."""
        if not self._places and not self._alone:
            return
        if subjects is None:
            known = np.full(len(windows), NO_SUBJECT)
        else:
            known = subjects
        for subject in np.unique(known):
            own = windows[known == subject]
            for sensor, places in self._places.items():
                sums = self._sums.setdefault((int(subject), sensor), _Sums())
                values = own[..., places].astype(np.float64).reshape(len(own), -1, 3)
                sums.windows += len(own)
                sums.size += len(own) * mean_magnitude(values)
                sums.direction += float(np.linalg.norm(values.mean(axis=1), axis=1).sum())
            for place in self._alone:
                sums = self._sums_alone.setdefault((int(subject), place), _Sums())
                sums.windows += len(own)
                sums.size += len(own) * float(np.abs(own[..., place].astype(np.float64)).mean())

    def refuse(self, where: str) -> None:
        """Raises DataError for the first person whose readings are not plausible."""
        order = list(self._places)
        for (subject, sensor), sums in sorted(
            self._sums.items(), key=lambda item: (item[0][0], order.index(item[0][1]))
        ):
            wrong = _problem(sensor, sums)
            if wrong is not None:
                if wrong.endswith("?"):
                    stop = ""
                else:
                    stop = "."
                names = sensor.channels
                raise DataError(
                    f"{where}: {_whose(subject)}{wrong}{stop} Give {names[0]} to {names[-1]} in"
                    f" {KIND_UNITS[sensor.kind]}{_ALSO.get(sensor.kind, '')}, or leave the"
                    " recordings out"
                )
        for (subject, place), sums in sorted(self._sums_alone.items()):
            unit = self._alone[place]
            wrong = axis_problem(sums.size / sums.windows, unit)
            if wrong is not None:
                raise DataError(
                    f"{where}: {_whose(subject)}{self._signals.channels[place]}: {wrong} Give it in"
                    f" {unit}, or leave the recordings out"
                )


def _whose(subject: int) -> str:
    """Return the beginning of a line that names a subject, where one is known."""
    if subject == NO_SUBJECT:
        return ""
    return f"subject {subject}: "


_ALSO = {ACCELERATION: ", gravity included"}


def _problem(sensor: Sensor, sums: _Sums) -> str | None:
    wrong = SIZE_PROBLEMS[sensor.kind](sums.size / sums.windows)
    if wrong is None and sensor.kind == ACCELERATION:
        return direction_problem(sums.direction / sums.windows)
    return wrong


def refuse_implausible(recordings: Recordings, where: str) -> Recordings:
    """Return the recordings, if `UnitsLook` has nothing against them. Raises DataError."""
    look = UnitsLook(recordings.signals)
    for start in range(0, len(recordings.windows), _AT_ONCE):
        rows = slice(start, start + _AT_ONCE)
        look.take(recordings.windows[rows], recordings.subjects[rows])
    look.refuse(where)
    return recordings
