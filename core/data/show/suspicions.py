"""What looks wrong about recordings, with the likely cause: units, sensors, rates, times."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.data.described.channels import signals_of
from core.data.described.description import UNITS, ChannelForm, RecordingFormat
from core.data.resampling import SPARSE
from core.data.show.looks import SessionLook
from core.data.show.portrait import ChannelRow
from core.data.signals import ACCELERATION, SIZE_PROBLEMS, Sensor
from core.plausible import direction_problem, mean_magnitude, times_problem

BLOCK = 128
"""Readings over which an acceleration must have a direction, as it has over a window."""
OTHER_RATE = 1.25
"""A rate that differs by this factor from the windows' is said."""


@dataclass
class _Sums:
    blocks: int = 0
    size: float = 0.0
    direction: float = 0.0


class Judge:
    """Takes readings in the units of windows, and says which sensors cannot be what is said."""

    def __init__(self, form: RecordingFormat) -> None:
        self._form = form
        self._places = signals_of(form).judged
        self._sums: dict[tuple[Sensor, str], _Sums] = {}

    def take(self, whose: str, values: NDArray[np.float64]) -> None:
        """Add the next readings of a session, (n, channels)."""
        for sensor, places in self._places.items():
            sums = self._sums.setdefault((sensor, whose), _Sums())
            own = values[:, places]
            for block in (own[start : start + BLOCK] for start in range(0, len(own), BLOCK)):
                sums.blocks += 1
                sums.size += mean_magnitude(block)
                sums.direction += float(np.linalg.norm(block.mean(axis=0)))

    def problems(self, channels: Sequence[ChannelRow]) -> Iterator[str]:
        """Yield one line for each sensor that looks wrong, and for each channel of one value."""
        judged = set[str]()
        for sensor in self._places:
            found = {
                whose: wrong
                for (of, whose), sums in self._sums.items()
                if of == sensor and (wrong := self._problem(sensor, sums)) is not None
            }
            if found:
                judged.update(sensor.channels)
                yield _said(sensor.name, found)
        constant = [
            f"{channel.name} ({channel.least:g})"
            for channel in channels
            if channel.least == channel.most and channel.name not in judged
        ]
        if constant:
            yield f"{', '.join(constant)}: one value alone; did the sensor give any?"

    def _problem(self, sensor: Sensor, sums: _Sums) -> str | None:
        size = sums.size / sums.blocks
        wrong = SIZE_PROBLEMS[sensor.kind](size)
        if wrong is None and sensor.kind == ACCELERATION:
            return direction_problem(sums.direction / sums.blocks)
        if wrong is None or not size:
            return wrong
        channel = next(one for one in self._form.shown if one.name == sensor.name)
        return f"{wrong}{_likely(channel, size, SIZE_PROBLEMS[sensor.kind])}"


def _likely(channel: ChannelForm, size: float, judge: Callable[[float], str | None]) -> str:
    """Return which other units would make a mean length plausible."""
    kind, factor = UNITS[channel.unit]
    others = {
        unit: size / factor * other
        for unit, (of, other) in UNITS.items()
        if of == kind and unit != channel.unit
    }
    likely = [f"{unit} ({value:.3g} {kind})" for unit, value in others.items() if not judge(value)]
    return f" The format says {channel.unit}; plausible: {' or '.join(likely) or 'no other unit'}"


def rate_problems(form: RecordingFormat, sessions: Sequence[SessionLook]) -> Iterator[str]:
    """Yield what is wrong with the times of sessions, and with their rate for the windows."""
    found: dict[str, dict[str, str]] = {}
    for one in sessions:
        whose = f"{one.person} {one.session}".strip()
        if one.readings > 2 and 2 * one.unordered > one.readings:
            said = "most readings have the time of the one before or an older one"
            found.setdefault("time.column", {})[whose] = said
        elif one.hertz:
            wrong = times_problem(1.0 / one.hertz)
            key, said = "time.unit", wrong or ""
            if wrong is None:
                key, said = "time.hertz", _rate_problem(form.time.hertz, one.hertz)
            if said:
                found.setdefault(key, {})[whose] = said
    for key, each in found.items():
        yield _said(key, each)


def _rate_problem(windows: float | None, found: float) -> str:
    if windows is None or 1 / OTHER_RATE <= found / windows <= OTHER_RATE:
        return ""
    if found < windows / SPARSE:
        return (
            f"about {found:.3g} readings a second, too few for windows of {windows:g}: set"
            " jobs.train.data.sampling_hz"
        )
    return f"about {found:.3g} readings a second, which become {windows:g}"


def _said(name: str, found: Mapping[str, str]) -> str:
    """Return the first of several problems, and how many others there are."""
    whose, wrong = next(iter(found.items()))
    also = f" (and {len(found) - 1} other sessions)" if len(found) > 1 else ""
    return f"{name}: {whose}: {wrong}{also}"
