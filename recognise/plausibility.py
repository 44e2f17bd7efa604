"""The check whether windows can be those of a sensor on a person, and whether they fit a model.

It finds wrong units and missing sensors. Sensors are those that the model states, or those of the
nine channels by name; windows of unknown channels are not judged. It needs no SciPy.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from core.data.filters import CHANNELS, NINE_UNITS, SAMPLE_RATE_HZ
from core.data.signals import ACCELERATION, SIZE_PROBLEMS, UNFILTERED, Sensor, Signals
from core.exported.description import Description
from core.ground.errors import UsageError
from core.ground.plausible import AXIS_SIZES, direction_problem, mean_magnitude

SILENT = 1e-6
"""A filtered signal below it is what is left of an earlier one: in g and rad/s, far below the noise
of a sensor."""


def signals_of(description: Description) -> Signals:
    """Return what the export states of its channels."""
    model_input = description.input
    rate_and_filters = description.sampling_hz, description.filters
    sensors = tuple(Sensor(name, kind) for name, kind in model_input.sensors.items())
    return Signals(
        model_input.channels,
        model_input.units,
        *rate_and_filters,
        sensors,
        description.format_sha256,
    )


def window_problem(window: NDArray[np.floating], signals: Signals) -> str | None:
    """Return what is wrong with a window (samples, channels), or None.

    None is for a plausible window, and for channels that are no sensors by their own word.
    """
    problems = [
        _problem(sensor, window[:, places].astype(np.float64))
        for sensor, places in signals.judged.items()
    ]
    problems += [
        AXIS_SIZES[unit].problem(float(np.abs(window[:, place].astype(np.float64)).mean()))
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


_NINE = f"the nine channels {CHANNELS[0]} to {CHANNELS[-1]}"
_STATE = (
    "state it with the recordings (an .npz has channels, units and sampling_hz) and train again"
)


def refuse_unfit(signals: Signals, mean: Sequence[float], std: Sequence[float]) -> None:
    """Raise UsageError for a model whose windows no stream can make.

    It makes the nine channels in g and rad/s at 50 Hz, and channels of stated names, units and rate
    that are not filtered. mean, std: the moments of each channel of the training, in its own unit.
    A fact that is not stated counts as unknown.
    """
    if not signals.channels:
        raise UsageError(
            f"expected a model of {_NINE}, got one whose training does not say its channels;"
            f" {_STATE}"
        )
    is_as_given = signals.filters == UNFILTERED and bool(signals.units)
    if signals.channels != CHANNELS and not is_as_given:
        channel_names = ", ".join(signals.channels)
        raise UsageError(
            f"expected a model of {_NINE} in this order, got {channel_names:.200}; give it windows"
            " that are cut already, in an .npz"
        )
    if signals.channels == CHANNELS and signals.units not in ((), NINE_UNITS):
        raise UsageError(
            f"expected a model of {_NINE} in {', '.join(NINE_UNITS)}, got"
            f" {', '.join(signals.units):.120}; give it windows that are cut already, in an .npz"
        )
    if signals.sampling_hz is None:
        raise UsageError(
            f"expected a model of {SAMPLE_RATE_HZ:g} Hz or another stated rate, got one whose"
            f" training does not say it; {_STATE}"
        )
    problem = moments_problem(mean, std, signals)
    if problem is not None:
        raise UsageError(
            f"the model was trained in other units than g and rad/s: {problem} Train it on those"
        )


def refuse_other_windows(name: str, windows: Signals, model: Signals) -> None:
    """Raise UsageError where windows and model state different facts."""
    for fact in ("channels", "units", "sampling_hz", "sensors"):
        stated = getattr(windows, fact)
        expected = getattr(model, fact)
        if stated and expected and stated != expected:
            raise UsageError(
                f"{name}: {fact}: expected those of the model, {_shown(expected)}, got"
                f" {_shown(stated)}; give it windows that are like its training's"
            )


def _shown(fact: object) -> str:
    if not isinstance(fact, tuple):
        return str(fact)
    texts = [
        f"{entry.name}: {entry.kind}" if isinstance(entry, Sensor) else str(entry) for entry in fact
    ]
    return f"{', '.join(texts):.120}"
