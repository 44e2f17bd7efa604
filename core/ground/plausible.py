"""Whether readings of an accelerometer and a gyroscope can be in g and rad/s.

Every way by which recordings come in asks it.

A judge of numbers alone: where they stand and what to do about them is said by who asks.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

PLAUSIBLE_G = 0.3, 4.0
"""Mean magnitude over a window. At rest it is 1; m/s^2 taken for g give 9.8, and g taken for m/s^2
give 0.1."""
MOST_ROTATION = 15.0
"""Mean magnitude over a window, rad/s. Walking and turning have up to 2.3 in HAPT, and the same in
deg/s up to 132."""
PLAUSIBLE_UT = 2.0, 2000.0
"""Mean magnitude over a window. The Earth's field has 22 to 67 uT; what a phone carries adds some
hundred before its calibration; gauss or mT taken for uT give less, nT more."""
LEAST_GRAVITY = 0.2
"""Length of a window's mean acceleration, in g. In HAPT's 17,453 windows it is 0.54 or more;
acceleration without gravity has about 0, also where its mean magnitude is that of a quiet person.
"""
STANDARD_GRAVITY = 9.80665
"""m/s^2 of 1 g. Source: https://en.wikipedia.org/wiki/Standard_gravity."""

ACCELERATION_UNITS = {"g": 1.0, "m/s2": 1.0 / STANDARD_GRAVITY}
"""Units of acceleration, each with its factor to g."""
ROTATION_UNITS = {"rad/s": 1.0, "deg/s": math.pi / 180.0}
"""Units of angular velocity, each with its factor to rad/s."""
UNITS_OF_TIME = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Each with its factor to seconds."""
MOST_HZ = 4000.0
LEAST_HZ = 1.0
"""Readings a second that a sensor of motion may give; phones give 5 to 500."""
_USUAL_SECONDS = 1 / 500, 1 / 5


def direction_problem(length: float) -> str | None:
    """Return what is wrong with the length of a window's mean acceleration, in g.

    None where it can be gravity's.
    """
    if length >= LEAST_GRAVITY:
        return None
    return "the mean acceleration has no direction; is it acceleration without gravity?"


def times_problem(step: float, unit: str = "s") -> str | None:
    """Return what is wrong with times of median step `step` if they are in `unit`.

    None for plausible ones.
    """
    if 1 / MOST_HZ <= step * UNITS_OF_TIME[unit] <= 1 / LEAST_HZ:
        return None
    least, most = _USUAL_SECONDS
    likely = [
        other
        for other, factor in UNITS_OF_TIME.items()
        if other != unit and least <= step * factor <= most
    ]
    return (
        f"readings lie {step:g} {unit} apart; are the times in"
        f" {' or '.join(likely) or 'another unit'}?"
    )


def mean_magnitude(values: Any) -> float:
    """Mean length of vectors, (..., 3)."""
    vectors = np.asarray(values, np.float64)
    return float(np.linalg.norm(vectors, axis=-1).mean())


@dataclass(frozen=True)
class MeanSize:
    """What the mean size of something may be in its unit, and what is said where all are 0."""

    measured: str
    unit: str
    least: float
    most: float
    of_nothing: str = ""

    def problem(self, size: float) -> str | None:
        """Return what is wrong with a mean size; None for a plausible one."""
        if size == 0.0 and self.of_nothing:
            return self.of_nothing
        if self.least <= size <= self.most:
            return None
        expected = f"{self.least:g} to {self.most:g}" if self.least else f"at most {self.most:g}"
        return (
            f"mean {self.measured} {size:.3g} {self.unit}, expected {expected}; is the unit"
            f" {self.unit}?"
        )


acceleration_problem = MeanSize(
    "acceleration", "g", *PLAUSIBLE_G, "every acceleration is exactly 0: the sensor gave nothing"
).problem
linear_problem = MeanSize("acceleration", "g", 0.0, PLAUSIBLE_G[1]).problem
magnetic_problem = MeanSize(
    "field", "uT", *PLAUSIBLE_UT, "every magnetic field is exactly 0: the sensor gave nothing"
).problem
rotation_problem = MeanSize(
    "rotation", "rad/s", 0.0, MOST_ROTATION, "every rotation is exactly 0: no gyroscope"
).problem
"""Each says what is wrong with a mean magnitude: of an acceleration with gravity and without, a
magnetic field and an angular velocity."""
MOST_OF_AN_AXIS = {"g": PLAUSIBLE_G[1], "rad/s": MOST_ROTATION, "uT": PLAUSIBLE_UT[1]}
"""Mean size of one axis of a sensor, by the unit that is stated."""


def axis_problem(size: float, unit: str) -> str | None:
    """What is wrong with the mean size of one axis alone, in `unit`; None for a plausible one."""
    return MeanSize("size", unit, 0.0, MOST_OF_AN_AXIS[unit]).problem(size)
