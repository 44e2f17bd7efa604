"""What a model takes of a reading: which of its values, by name, and in which unit.

A model of the nine channels takes acceleration and rotation, which filters make the channels of.
Another one takes its channels as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.data.described.description import NONE, UNITS
from core.data.filters import CHANNELS
from core.data.intake import LARGEST_VALUE
from core.data.signals import ACCELERATION, KIND_UNITS, MAGNETIC, ROTATION, Sensor, Signals
from core.ground.errors import UsageError

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


def largest_values(model: Signals) -> NDArray[np.float64]:
    """Return what the size of each input's values may be, (inputs,)."""
    known_units = set(KIND_UNITS.values())
    units = inputs_of(model).units
    return np.array([LARGEST_VALUE if unit in known_units else LARGEST_OF_OTHERS for unit in units])


@dataclass(frozen=True)
class InputMapping:
    """How the inputs of a model follow from the values of a reading."""

    places: tuple[int, ...]
    factors: tuple[float, ...]

    def of(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the inputs, (n, inputs), of values (n, channels) as they come."""
        inputs: NDArray[np.float64] = values[:, self.places] * np.array(self.factors)
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
            f" {_names_with_units(source, source.channels)}; record with that sensor and name it so, or take"
            " another model"
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
