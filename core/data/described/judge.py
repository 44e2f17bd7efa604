"""Whether each recording is in the units that its format says, before windows are cut."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.data.described.channels import signals_of
from core.data.described.description import UNITS, RecordingFormat
from core.data.signals import SIZE_PROBLEMS
from core.data.windows import Implausible, UnitsLook, as_sentence
from core.ground.errors import DataError

BLOCK = 128
"""Readings over which an acceleration must have a direction, as it has over a window."""


class Judge:
    """Takes readings in the units of windows, and says which sensors cannot be what is said."""

    def __init__(self, form: RecordingFormat) -> None:
        self._form = form
        self._largest = form.largest()
        self._look = UnitsLook(signals_of(form))

    def take(self, recording: str, values: NDArray[np.float64]) -> None:
        """Add the next readings of a recording, (n, channels).

        Values that no sensor has are left out, as windows leave them out.
        """
        values = values[(np.abs(values) <= self._largest).all(axis=1)]
        for start in range(0, len(values), BLOCK):
            self._look.take(recording, values[np.newaxis, start : start + BLOCK])

    def problems(self) -> Iterator[str]:
        """Yield one line for each sensor that looks wrong."""
        for first, *other_problems in self._by_name():
            yield f"{self._problem_in_words(first)}{_also(len(other_problems))}"

    def refuse(self, path: Path) -> None:
        """Raises DataError for the first sensor that looks wrong."""
        for first, *other_problems in self._by_name():
            wrong = as_sentence(f"{self._problem_in_words(first)}{_also(len(other_problems))}")
            raise DataError(
                f"{path}: {wrong} Give {first.give}: correct `unit` or"
                " `gravity`, or convert or leave out what is otherwise"
            )

    def _by_name(self) -> Iterable[list[Implausible]]:
        """Return what is wrong of each sensor, which is at least one recording."""
        problems: dict[str, list[Implausible]] = {}
        for problem in self._look.problems():
            problems.setdefault(problem.name, []).append(problem)
        return problems.values()

    def _problem_in_words(self, problem: Implausible) -> str:
        """Return what is wrong, and which other units would make a mean length plausible."""
        message = f"{problem.name}: {problem.recording}: {problem.wrong}"
        sensor = next(
            (
                candidate
                for candidate in signals_of(self._form).judged
                if candidate.name == problem.name
            ),
            None,
        )
        if sensor is None or not problem.size or not SIZE_PROBLEMS[sensor.kind](problem.size):
            return message
        channel = next(
            candidate for candidate in self._form.shown if candidate.name == problem.name
        )
        unit, factor = UNITS[channel.unit]
        other_sizes = {
            name: problem.size / factor * other
            for name, (of, other) in UNITS.items()
            if of == unit and name != channel.unit
        }
        likely = [
            f"{name} ({size:.3g} {unit})"
            for name, size in other_sizes.items()
            if not SIZE_PROBLEMS[sensor.kind](size)
        ]
        return (
            f"{message} The format says {channel.unit}; plausible:"
            f" {' or '.join(likely) or 'no other unit'}"
        )


def _also(other_recordings: int) -> str:
    if other_recordings:
        return f" (and {other_recordings} other recordings)"
    return ""
