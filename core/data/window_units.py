"""Whether readings are in the units that they claim: the one judge, at every way in.

The magnitude of what an accelerometer and a gyroscope gave decides, for each recording by itself;
where no recordings are known, for each person.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.data.recordings import NO_SUBJECT
from core.data.signals import ACCELERATION, KIND_UNITS, SIZE_PROBLEMS, Sensor, Signals
from core.ground.errors import DataError
from core.ground.plausible import axis_problem, direction_problem

ODD_SHARE = 0.02
LEAST_ODD = 2
"""Windows of a recording that are in another unit by themselves, from which on they are refused."""
LONG_WINDOW = 64
"""Steps that no fall lasts."""

Sums = NDArray[np.float64]


@dataclass(frozen=True)
class Implausible:
    """What a recording has wrong: the sensor or channel, its mean size, why, and what to give."""

    recording: str
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
        self._odd: dict[tuple[str, Sensor, str], Sums] = {}
        """Sums of windows that are wrong by themselves, in each way."""

    def take(
        self, recording: str, windows: NDArray[np.generic], *, is_by_window: bool = False
    ) -> None:
        """Look at some windows of a recording too, (n, ..., channels).

        With `is_by_window` those that are wrong by themselves are judged as a part of it too: a
        mean over windows of several recordings hides one in other units.
        """
        count = len(windows)
        for sensor, places in self._places.items():
            values = windows[..., places].astype(np.float64).reshape(count, -1, 3)
            figures = np.ones((count, 4))
            figures[:, 1] = np.linalg.norm(values, axis=-1).mean(axis=1)
            figures[:, 2] = np.linalg.norm(values.mean(axis=1), axis=1)
            figures[:, 3] = np.ptp(values, axis=-1).sum(axis=1)
            self._add(self._sums, (recording, sensor), figures)
            if is_by_window:
                for row, (_, size, direction, _) in enumerate(figures.tolist()):
                    how = _how_odd(sensor.kind, size, direction, values.shape[1])
                    if how:
                        self._add(self._odd, (recording, sensor, how), figures[row : row + 1])
        for place in self._alone:
            sizes = np.abs(windows[..., place].astype(np.float64)).reshape(count, -1)
            figures = np.ones((count, 4))
            figures[:, 1] = sizes.mean(axis=1)
            self._add(self._sums, (recording, place), figures)

    @staticmethod
    def _add(sums: dict[Any, Sums], key: Any, figures: NDArray[np.float64]) -> None:
        sums[key] = sums.get(key, 0.0) + figures.sum(axis=0)

    def take_people(
        self, windows: NDArray[np.generic], subjects: NDArray[np.integer] | None
    ) -> None:
        """Look at windows of which no recording is known, and at who was recorded, (n,)."""
        if not self._places and not self._alone:
            return
        if subjects is None:
            subjects = np.full(len(windows), NO_SUBJECT)
        for subject in np.unique(subjects):
            person = ""
            if subject != NO_SUBJECT:
                person = f"subject {subject}"
            self.take(person, windows[subjects == subject], is_by_window=True)

    def problems(self) -> Iterator[Implausible]:
        """Yield what is wrong, recording by recording, then parts of recordings."""
        looks = list(self._sums.items())
        for (recording, sensor, _), sums in self._odd.items():
            windows = self._sums[recording, sensor][0]
            if sums[0] >= max(LEAST_ODD, ODD_SHARE * windows):
                part = f"{sums[0]:.0f} of {windows:.0f} windows"
                looks.append(((", ".join(filter(None, (recording, part))), sensor), sums))
        for (recording, measured), sums in looks:
            size, direction, differences = (sums[1:] / sums[0]).tolist()
            if isinstance(measured, int):
                unit = self._alone[measured]
                wrong = axis_problem(size, unit)
                name = self._signals.channels[measured]
                give = f"it in {unit}"
            else:
                wrong = SIZE_PROBLEMS[measured.kind](size)
                if wrong is None and measured.kind == ACCELERATION:
                    wrong = direction_problem(direction)
                if wrong is None and not differences:
                    wrong = "x, y and z are equal in every reading; are they one column?"
                name = measured.name
                names = measured.channels
                give = f"{names[0]} to {names[-1]} in {KIND_UNITS[measured.kind]}"
                give += _ALSO.get(measured.kind, "")
            if wrong is not None:
                yield Implausible(recording, name, size, wrong, give)

    def refuse(self, where: str) -> None:
        """Raises DataError for the first recording that is not plausible."""
        for problem in self.problems():
            clauses = [where, problem.recording, problem.name, as_sentence(problem.wrong)]
            raise DataError(
                f"{': '.join(filter(None, clauses))} Give {problem.give}, or leave the recordings"
                " out"
            )


def as_sentence(wrong: str) -> str:
    """Return what is wrong as a sentence, which a question is already."""
    if wrong.endswith("?"):
        return wrong
    return f"{wrong}."


def _how_odd(kind: str, size: float, direction: float, steps: int) -> str:
    """Return how a window is in no unit of its kind by itself; empty where it may be.

    A short one may be of a free fall, and a gyroscope at rest may give 0.
    """
    is_wrong = SIZE_PROBLEMS[kind](size) is not None
    if is_wrong and size > 1.0:
        return "large"
    is_still = kind == ACCELERATION and (is_wrong or direction_problem(direction) is not None)
    if is_still and steps >= LONG_WINDOW:
        return "small"
    return ""


_ALSO = {ACCELERATION: ", gravity included"}
