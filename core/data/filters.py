"""The nine channels of raw readings, and what a model takes of a reading.

The channels are those that the classic UCI HAR set describes.

Source: Reyes-Ortiz et al., README and features_info of "Smartphone-Based Recognition of Human
Activities and Postural Transitions" (UCI): median filter, then a 3rd-order Butterworth low-pass at
20 Hz against noise; gravity is what a 3rd-order Butterworth low-pass at 0.3 Hz leaves, body
acceleration the rest.

A recording is filtered forwards and backwards (`nine_channels`), as the published set was, so no
channel lags. A live stream has no later samples: `CausalFilters` runs the same filters forwards, a
chunk at a time. `causal_channels` runs them over a whole recording, for a training that fits a
stream.

A model of the nine channels takes acceleration and rotation; another one takes its channels as they
are, by name and in its units (`input_mapping`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.data.arrays import Numbers, Singles
from core.data.described.description import NONE, UNITS
from core.data.intake import LARGEST_VALUE
from core.data.signals import ACCELERATION, CAUSAL, KIND_UNITS, MAGNETIC, ROTATION, Sensor, Signals
from core.ground.errors import UsageError

SAMPLE_RATE_HZ = 50.0
NOISE_CUTOFF_HZ = 20.0
GRAVITY_CUTOFF_HZ = 0.3
MEDIAN_STEPS = 3
FILTER_ORDER = 3

SECTIONS: Mapping[float, tuple[str, ...]] = {
    NOISE_CUTOFF_HZ: (
        "0x1.0e24c876d6097p-1 0x1.0e24c876d6097p-1 0 1 0x1.04e0850c1dd5cp-1 0",
        "1 2 1 1 0x1.4021d8459b21bp+0 0x1.17690be18e3d1p-1",
    ),
    GRAVITY_CUTOFF_HZ: (
        "0x1.b0f9ec8d67f8fp-18 0x1.b0f9ec8d67f8fp-17 0x1.b0f9ec8d67f8fp-18 1 "
        "-0x1.ed0d8e6625c04p-1 0",
        "1 1 0 1 -0x1.f62c3753dd5c4p+0 0x1.ed0f3f60124dap-1",
    ),
}
"""Each filter's second-order sections, b0 b1 b2 a0 a1 a2, as `scipy.signal.butter` computes them on
x86_64: on aarch64 their last bits differ, and with them every window and parameter."""

CHANNELS = tuple(
    f"{signal_name}_{axis}"
    for signal_name in ("body_acc", "body_gyro", "total_acc")
    for axis in "xyz"
)
"""Order of the channels: body acceleration (g), angular velocity (rad/s), total acceleration (g),
each x, y, z."""
NINE_UNITS = ("g", "g", "g", "rad/s", "rad/s", "rad/s", "g", "g", "g")
"""The unit of each channel."""

NINE_CHANNELS = Signals(CHANNELS, NINE_UNITS, SAMPLE_RATE_HZ)
"""Signals that `channels_by` gives and that the published sets state; how they were filtered is a
setting."""

SHORTEST_RECORDING_STEPS = 32
"""Steps that both filters need, which run forwards and backwards over padded ends."""

Samples = NDArray[np.float64]


def nine_channels(acceleration: Samples, angular_velocity: Samples) -> Singles:
    """Channels, float32 (steps, 9), from raw readings in g and rad/s, each (steps, 3), at 50 Hz."""
    total = remove_noise(acceleration)
    body = total - gravity(total)
    return np.concatenate([body, remove_noise(angular_velocity), total], axis=1).astype(np.float32)


def causal_channels(acceleration: Samples, angular_velocity: Samples) -> Singles:
    """Return the nine channels of a whole recording, filtered forwards only.

    No step depends on a later one.
    """
    return CausalFilters().push(acceleration, angular_velocity)


def channels_by(direction: str, acceleration: Samples, angular_velocity: Samples) -> Singles:
    """The channels of a whole recording, filtered `two-way` or `causal`."""
    return (causal_channels if direction == CAUSAL else nine_channels)(
        acceleration, angular_velocity
    )


class FilterState(NamedTuple):
    """What causal filters know of the samples so far, float64; `FILTER_STATE` has the shapes."""

    before: Samples
    """The last samples, which the next median needs."""
    noise: Samples
    """The state of the low-pass against noise: sections, two delays, channels."""
    gravity: Samples
    """The state of the low-pass that leaves gravity: sections, two delays, channels."""


_SECTIONS = (FILTER_ORDER + 1) // 2
FILTER_STATE: Mapping[str, tuple[int, ...]] = {
    "before": (MEDIAN_STEPS - 1, 6),
    "noise": (_SECTIONS, 2, 6),
    "gravity": (_SECTIONS, 2, 3),
}
"""Shape of each part of a `FilterState`."""


class CausalFilters:
    """The filters with state: chunks of any length give the bits of the whole recording.

    Their first state is the one after an endless signal equal to the first sample:
    `scipy.signal.sosfilt_zi`.
    """

    def __init__(self, state: FilterState | None = None) -> None:
        """Begin, or continue where other filters had this state."""
        self.state = state
        """What the next samples' channels depend on; None before the first sample."""

    def push(self, acceleration: Samples, angular_velocity: Samples) -> Singles:
        """Return the channels, float32 (steps, 9), of the next readings.

        They are in g and rad/s, each (steps, 3), at 50 Hz.
        """
        samples = np.concatenate([acceleration, angular_velocity], axis=1)
        if not len(samples):
            return np.empty((0, len(CHANNELS)), np.float32)
        noise = slow = None
        before = np.repeat(samples[:1], MEDIAN_STEPS - 1, axis=0)
        if self.state is not None:
            before, noise, slow = self.state
        rows = np.concatenate([before, samples])
        first = rows[:-2]
        second = rows[1:-1]
        third = rows[2:]
        median = np.maximum(np.minimum(first, second), np.minimum(np.maximum(first, second), third))
        quiet, noise = _causal_low_pass(NOISE_CUTOFF_HZ, median, noise)
        total = quiet[:, :3]
        gravity_part, slow = _causal_low_pass(GRAVITY_CUTOFF_HZ, total, slow)
        self.state = FilterState(rows[1 - MEDIAN_STEPS :].copy(), noise, slow)
        body = total - gravity_part
        return np.concatenate([body, quiet[:, 3:], total], axis=1).astype(np.float32)


def _causal_low_pass(
    cutoff_hz: float, samples: Samples, state: Samples | None
) -> tuple[Samples, Samples]:
    """Return filtered samples, (steps, channels), and the state behind them."""
    from scipy import signal  # 50 MB, which a service without live sessions spares

    sections = _sections(cutoff_hz)
    if state is None:
        # (sections, 2) of a step of height 1, times the first sample: (sections, 2, channels)
        state = signal.sosfilt_zi(sections)[:, :, np.newaxis] * samples[0]
    filtered, state = signal.sosfilt(sections, samples, axis=0, zi=state)
    return filtered, state


def remove_noise(samples: Samples) -> Samples:
    """Apply the median filter of 3 steps, then the 20 Hz low-pass without phase shift.

    The shape is (steps, channels).
    """
    from scipy import ndimage

    return _low_pass(
        ndimage.median_filter(samples, size=(MEDIAN_STEPS, 1), mode="nearest"), NOISE_CUTOFF_HZ
    )


def gravity(acceleration: Samples) -> Samples:
    """The part below 0.3 Hz, same shape and unit."""
    return _low_pass(acceleration, GRAVITY_CUTOFF_HZ)


def _low_pass(samples: Samples, cutoff_hz: float) -> Samples:
    from scipy import signal

    filtered: Samples = signal.sosfiltfilt(_sections(cutoff_hz), samples, axis=0)
    return filtered


@cache
def _sections(cutoff_hz: float) -> Samples:
    """The filter's second-order sections (sections, 6)."""
    return np.array([[float.fromhex(word) for word in row.split()] for row in SECTIONS[cutoff_hz]])


ACC = Sensor("acc", ACCELERATION)
GYRO = Sensor("gyro", ROTATION)
MAG = Sensor("mag", MAGNETIC)
USUAL = (ACC, GYRO, MAG)
"""Sensors of a device that gives no names."""
LARGEST_OF_OTHERS = 1e30
"""The largest value of a channel in a unit that is not known here."""


def signals_of_sensors(sensors: Sequence[Sensor], units: Sequence[str]) -> Signals:
    """Return the signals of sensors whose values come in these units, one for each sensor."""
    names = tuple(name for sensor in sensors for name in sensor.channels)
    spread = tuple(unit for unit in units for _ in range(3))
    return Signals(names, spread, sensors=tuple(sensors))


OF_NINE_CHANNELS = signals_of_sensors((ACC, GYRO), ("g", "rad/s"))


def takes_nine(model: Signals) -> bool:
    """Return whether filters make the model's channels of acceleration and rotation."""
    return model.channels == CHANNELS


def inputs_of(model: Signals) -> Signals:
    """Return what the model takes of a reading, in the order and the units that it takes."""
    if takes_nine(model):
        return OF_NINE_CHANNELS
    return model


def signals_of_device(model: Signals, kinds: Sequence[str], units: Sequence[str]) -> Signals:
    """Return the sensors of a device that has one of each of these kinds, and gives no names.

    A sensor is called what the model calls its own of that kind. Raises UsageError where the model
    has several of them.
    """
    sensors = []
    for kind in kinds:
        candidates = [sensor for sensor in inputs_of(model).sensors if sensor.kind == kind]
        if len(candidates) > 1:
            names = ", ".join(sensor.name for sensor in candidates)
            raise UsageError(
                f"the model takes {kind} of {names:.120}, and a device without names has one of"
                " them; give the channels their names"
            )
        candidates += [sensor for sensor in USUAL if sensor.kind == kind]
        sensors.append(candidates[0])
    return signals_of_sensors(sensors, units)


def largest_values(model: Signals) -> Numbers:
    """Return what the size of each input's values may be, (inputs,)."""
    known_units = set(KIND_UNITS.values())
    units = inputs_of(model).units
    return np.array([LARGEST_VALUE if unit in known_units else LARGEST_OF_OTHERS for unit in units])


@dataclass(frozen=True)
class InputMapping:
    """How the inputs of a model follow from the values of a reading."""

    places: tuple[int, ...]
    factors: tuple[float, ...]

    def applied_to(self, values: Numbers) -> Numbers:
        """Return the inputs, (n, inputs), of values (n, channels) as they come."""
        inputs: Numbers = values[:, self.places] * np.array(self.factors)
        return inputs


def input_mapping(source: Signals, model: Signals) -> InputMapping:
    """Return how the model's inputs follow from the given channels.

    Raises UsageError that names what is missing, is another quantity or has another unit.
    """
    inputs = inputs_of(model)
    missing = [name for name in inputs.channels if name not in source.channels]
    if missing:
        raise UsageError(
            f"the model takes {_names_with_units(inputs, missing)}, which is not among"
            f" {_names_with_units(source, source.channels)}; record with that sensor and name it"
            " so, or take another model"
        )
    kinds = {sensor.name: sensor.kind for sensor in source.sensors}
    for sensor in inputs.sensors:
        kind = kinds.get(sensor.name, sensor.kind)
        if kind != sensor.kind:
            raise UsageError(
                f"the model takes {sensor.kind} as {sensor.name}, got {kind}; give that under this"
                " name, or take another model"
            )
    places = [source.channels.index(name) for name in inputs.channels]
    units = [source.units[place] for place in places]
    factors = map(_factor, inputs.channels, units, inputs.units)
    return InputMapping(tuple(places), tuple(factors))


def _factor(name: str, source_unit: str, model_unit: str) -> float:
    if source_unit == model_unit:
        return 1.0
    from_unit = UNITS.get(source_unit, (NONE, 1.0))
    to_unit = UNITS.get(model_unit, (NONE, 1.0))
    if from_unit[0] == NONE or from_unit[0] != to_unit[0]:
        raise UsageError(
            f"{name}: the model takes {model_unit}, got {source_unit:.40}; convert it first"
        )
    return from_unit[1] / to_unit[1]


def _names_with_units(signals: Signals, names: Sequence[str]) -> str:
    """Return names with their units: `acc_x, acc_y (g), mag_x (uT)`."""
    by_unit: dict[str, list[str]] = {}
    for name in names:
        by_unit.setdefault(signals.units[signals.channels.index(name)], []).append(name)
    return ", ".join(f"{', '.join(channels)} ({unit})" for unit, channels in by_unit.items())[:300]
