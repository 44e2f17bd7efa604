"""Sensors with times of their own become readings: acceleration with gravity, and rotation, at one time. Pure.

The times are those of the acceleration; the others are taken between their two neighbours, linearly.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from recognise.service.live.sensor_logger import ACCELEROMETER, GRAVITY, GYROSCOPE, TOTAL
from recognise.stream import Fault

Rows = NDArray[np.float64]
"""(n, 4): seconds, x, y, z."""

MOST_WAITING = 8192
"""Rows of one sensor that wait for another; the oldest go."""
_JUMP_SECONDS = 10.0
"""A whole post that is so much older than the one before: the phone's clock went back."""


class Merging:
    """State: what waits of each sensor."""

    def __init__(self, sign: float, longest_gap_seconds: float) -> None:
        """`sign`: -1.0 where acceleration has an iPhone's signs."""
        self._sign, self._gap = sign, longest_gap_seconds
        self._rows: dict[str, Rows] = {}
        self._has_total = False
        self._until = -np.inf
        """No reading before this is taken any more."""

    @property
    def missing(self) -> list[str]:
        """Sensors without which there is no label, and that have sent nothing."""
        wanted = [GYROSCOPE] if self._has_total else [ACCELEROMETER, GRAVITY, GYROSCOPE]
        return [name for name in wanted if name not in self._rows]

    def add(self, sensors: Mapping[str, Sequence[tuple[float, float, float, float]]]) -> tuple[Rows, Rows, list[Fault]]:
        """The readings that are whole now: total acceleration and rotation, each (n, 4), at the same times.

        Rows that are older than readings which went before are dropped, with a fault `late`.
        """
        self._has_total |= TOTAL in sensors
        unused = (ACCELEROMETER, GRAVITY) if self._has_total else ()
        late = 0
        taken = {name: np.array(rows, np.float64) for name, rows in sensors.items() if name not in unused}
        if taken and max(rows[:, 0].max() for rows in taken.values()) < self._until - _JUMP_SECONDS:
            self._rows.clear()
            self._until = -np.inf
        for name, rows in taken.items():
            is_late = (rows[:, 0] <= self._until) & (name in (TOTAL, ACCELEROMETER))
            late += int(is_late.sum())
            joined = np.concatenate([self._rows.get(name, np.empty((0, 4))), rows[~is_late]])
            self._rows[name] = joined[np.argsort(joined[:, 0], kind="stable")][-MOST_WAITING:]
        acceleration, rotation = self._whole()
        faults = (
            [Fault("late", self._until, f"dropped {late} readings that are older than those before")] if late else []
        )
        return acceleration, rotation, faults

    def _whole(self) -> tuple[Rows, Rows]:
        none = np.empty((0, 4)), np.empty((0, 4))
        base = self._rows.get(TOTAL if self._has_total else ACCELEROMETER)
        others = [self._rows.get(name) for name in ([GYROSCOPE] if self._has_total else [GYROSCOPE, GRAVITY])]
        if base is None or not len(base) or any(other is None or not len(other) for other in others):
            return none
        present = [other for other in others if other is not None]
        end = min(float(other[-1, 0]) for other in present)
        ready = base[base[:, 0] <= end]
        if not len(ready):
            return none
        self._until = float(ready[-1, 0])
        name = TOTAL if self._has_total else ACCELEROMETER
        self._rows[name] = base[len(ready) :]
        between = [self._between(other, ready[:, 0]) for other in present]
        is_good = np.all([good for _, good in between], axis=0)
        acceleration = ready[:, 1:] if self._has_total else ready[:, 1:] + between[1][0]
        times = ready[:, :1]
        for one in (GYROSCOPE, GRAVITY):
            if one in self._rows:
                self._rows[one] = _from(self._rows[one], self._until)
        return (
            np.concatenate([times, self._sign * acceleration], axis=1)[is_good],
            np.concatenate([times, between[0][0]], axis=1)[is_good],
        )

    def _between(self, rows: Rows, times: Rows) -> tuple[Rows, NDArray[np.bool_]]:
        """Values at these times, and whether the neighbours are near enough to know."""
        after = np.searchsorted(rows[:, 0], times, side="left")
        before = np.maximum(np.where(rows[np.minimum(after, len(rows) - 1), 0] == times, after, after - 1), 0)
        width = rows[after, 0] - rows[before, 0]
        share = np.where(width > 0, (times - rows[before, 0]) / np.where(width > 0, width, 1.0), 0.0)[:, np.newaxis]
        is_good = (width <= self._gap) & (rows[before, 0] <= times)
        return rows[before, 1:] * (1.0 - share) + rows[after, 1:] * share, is_good


def _from(rows: Rows, time: float) -> Rows:
    """The rows that a later time needs: from the last one that is not after `time`."""
    first = int(np.searchsorted(rows[:, 0], time, side="right")) - 1
    return rows[max(0, first) :]
