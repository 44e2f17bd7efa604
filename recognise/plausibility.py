"""The check whether windows can be those of a sensor on a person.

It finds wrong units and missing sensors. Sensors are those that the model states, or those of the
nine channels by name; windows of unknown channels are not judged. It needs no SciPy.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from core.data.signals import ACCELERATION, SIZE_PROBLEMS, Sensor, Signals
from core.ground.plausible import axis_problem, direction_problem, mean_magnitude

SILENT = 1e-6
"""A filtered signal below it is what is left of an earlier one: in g and rad/s, far below the noise
of a sensor."""


def window_problem(window: NDArray[np.floating], signals: Signals) -> str | None:
    """Return what is wrong with a window (samples, channels), or None.

    None is for a plausible window, and for channels that are no sensors by their own word.
    """
    problems = [
        _problem(sensor, window[:, places].astype(np.float64))
        for sensor, places in signals.judged.items()
    ]
    problems += [
        axis_problem(float(np.abs(window[:, place].astype(np.float64)).mean()), unit)
        for place, unit in signals.judged_alone.items()
    ]
    return next((problem for problem in problems if problem is not None), None)


def windows_problem(windows: NDArray[np.floating], signals: Signals) -> str | None:
    """Return what is wrong with the first implausible window of (n, samples, channels), or None.

    The text begins with the window's number.
    """
    if not signals.judged and not signals.judged_alone:
        return None
    problems = ((number, window_problem(window, signals)) for number, window in enumerate(windows))
    return next(
        (f"window {number}: {problem}" for number, problem in problems if problem is not None), None
    )


def gravity_problem(window: NDArray[np.floating], signals: Signals) -> str | None:
    """Return what is wrong with the direction of a window's acceleration, or None.

    None is for a window that has one, and for channels without acceleration.
    """
    for sensor, places in signals.judged.items():
        if sensor.kind == ACCELERATION:
            mean = window[:, places].astype(np.float64).mean(axis=0)
            problem = direction_problem(float(np.linalg.norm(mean)))
            if problem is not None:
                return problem
    return None


def moments_problem(mean: Sequence[float], std: Sequence[float], signals: Signals) -> str | None:
    """Return what is wrong with recordings of these means and deviations by channel, or None.

    None is for plausible ones, and for channels of other names or another number.
    """
    channels = signals.channels
    if len(mean) != len(channels) or len(std) != len(channels):
        return None
    return window_problem(np.hypot(np.array(mean, np.float64), std)[np.newaxis], signals)


def _problem(sensor: Sensor, vectors: NDArray[np.float64]) -> str | None:
    magnitude = mean_magnitude(vectors)
    if magnitude <= SILENT:
        magnitude = 0.0
    return SIZE_PROBLEMS[sensor.kind](magnitude)
