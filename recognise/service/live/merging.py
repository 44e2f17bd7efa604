"""Sensors with times of their own become readings: acceleration with gravity, and others. Pure.

The times are those of the acceleration; the others are taken between their two neighbours,
linearly.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from recognise.service.live.sensor_logger import ACCELEROMETER, GRAVITY, GYROSCOPE, TOTAL
from recognise.stream import InputFault

Rows = NDArray[np.float64]
"""(n, 4): seconds, x, y, z."""

MOST_WAITING = 8192
"""Rows of one sensor that wait for another; the oldest go."""
_NO_ROWS: Rows = np.empty((0, 4))
_JUMP_SECONDS = 10.0
"""A whole post that is so much older than the one before: the phone's clock went back."""


class Merging:
    """The sensors of one phone, and their rows that wait for another sensor."""

    def __init__(
        self, sign: float, longest_gap_seconds: float, beside: Sequence[str] = (GYROSCOPE,)
    ) -> None:
        """`sign` is -1.0 where acceleration has an iPhone's signs.

        beside: the sensors beside it, in the order that the readings have.
        """
        self._sign = sign
        self._beside = tuple(beside)
        self._gap = longest_gap_seconds
        self._rows: dict[str, Rows] = {}
        self._has_total = False
        self._until = -np.inf
        """The time before which no reading is taken any more."""

    @property
    def _base(self) -> str:
        """The sensor whose times the readings have."""
        return TOTAL if self._has_total else ACCELEROMETER

    @property
    def _others(self) -> tuple[str, ...]:
        """The sensors that are taken at those times."""
        return self._beside if self._has_total else (GRAVITY, *self._beside)

    @property
    def missing(self) -> list[str]:
        """Sensors without which there is no label, and that have sent nothing."""
        required_sensors = self._others if self._has_total else (ACCELEROMETER, *self._others)
        return [name for name in required_sensors if name not in self._rows]

    def add(
        self, sensors: Mapping[str, Sequence[tuple[float, float, float, float]]]
    ) -> tuple[Rows, list[InputFault]]:
        """Return the complete readings, and faults.

        A reading is its time, acceleration and the sensors beside it, (n, 4 + 3 each). Rows that
        are older than readings which went before are dropped, with a fault `late`.
        """
        self._has_total |= TOTAL in sensors
        rows_by_sensor = {name: np.array(rows, np.float64) for name, rows in sensors.items()}
        if self._has_total:
            rows_by_sensor.pop(ACCELEROMETER, None)
            rows_by_sensor.pop(GRAVITY, None)
        if (
            rows_by_sensor
            and max(rows[:, 0].max() for rows in rows_by_sensor.values())
            < self._until - _JUMP_SECONDS
        ):
            self._rows.clear()
            self._until = -np.inf
        faults = []
        for name, rows in rows_by_sensor.items():
            if name == self._base:
                is_late = rows[:, 0] <= self._until
                rows = rows[~is_late]
                if is_late.any():
                    dropped = f"dropped {is_late.sum()} readings that are older than those before"
                    faults.append(dropped)
            joined = np.concatenate([self._rows.get(name, _NO_ROWS), rows])
            self._rows[name] = joined[np.argsort(joined[:, 0], kind="stable")][-MOST_WAITING:]
        return self._complete(), [InputFault("late", self._until, detail) for detail in faults]

    def _complete(self) -> Rows:
        nothing = np.empty((0, 4 + 3 * len(self._beside)))
        base, *other_rows = (self._rows.get(name, _NO_ROWS) for name in (self._base, *self._others))
        if not len(base) or not all(map(len, other_rows)):
            return nothing
        end = min([float(other[-1, 0]) for other in other_rows], default=float(base[-1, 0]))
        ready = base[base[:, 0] <= end]
        if not len(ready):
            return nothing
        self._until = float(ready[-1, 0])
        self._rows[self._base] = base[len(ready) :]
        for name, other in zip(self._others, other_rows, strict=True):
            self._rows[name] = _from(other, self._until)
        values = [self._between(other, ready[:, 0]) for other in other_rows]
        is_good = np.all([np.ones(len(ready), np.bool_), *(good for _, good in values)], axis=0)
        acceleration = ready[:, 1:]
        if not self._has_total:
            acceleration = acceleration + values[0][0]  # gravity
        beside = [interpolated for interpolated, _ in values[len(values) - len(self._beside) :]]
        columns = [ready[:, :1], self._sign * acceleration, *beside]
        return np.concatenate(columns, axis=1)[is_good]

    def _between(self, rows: Rows, times: Rows) -> tuple[Rows, NDArray[np.bool_]]:
        """Return the values at these times, and whether the neighbours are near enough to know."""
        after = np.searchsorted(rows[:, 0], times, side="left")
        is_at_one = rows[np.minimum(after, len(rows) - 1), 0] == times
        before = np.maximum(np.where(is_at_one, after, after - 1), 0)
        width = rows[after, 0] - rows[before, 0]
        share = (times - rows[before, 0]) / np.where(width > 0, width, 1.0)
        share = np.where(width > 0, share, 0.0)[:, np.newaxis]
        is_good = (width <= self._gap) & (rows[before, 0] <= times)
        return rows[before, 1:] * (1.0 - share) + rows[after, 1:] * share, is_good


def _from(rows: Rows, time: float) -> Rows:
    """Return the rows that a later time needs: from the last one that is not after `time`."""
    first = int(np.searchsorted(rows[:, 0], time, side="right")) - 1
    return rows[max(0, first) :]
