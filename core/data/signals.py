"""What is known of the signals in windows.

A file, a person or a published set says it, and nothing else. An `.npz` may say: `channels`: text,
a name for each; `units`: text, one for each, or one for all; `sampling_hz`: steps a second, a
number; `filters`: `two-way` or `causal`, text.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.ground.plausible import (
    ACCELERATION_SIZE,
    AXIS_SIZES,
    LINEAR_SIZE,
    MAGNETIC_SIZE,
    ROTATION_SIZE,
)

TWO_WAY = "two-way"
CAUSAL = "causal"
UNFILTERED = "none"
FILTERS = (TWO_WAY, CAUSAL, UNFILTERED)
"""Ways to filter recordings: forwards and backwards, or forwards only, as a live stream has to
be, or not at all."""

LEAST_HZ = 1e-3
MOST_HZ = 1e6
"""Steps a second that a file may claim."""
_DIGEST = re.compile(r"[0-9a-f]{64}")

AXES = "xyz"
ACCELERATION = "acceleration"
LINEAR = "acceleration without gravity"
ROTATION = "rotation"
MAGNETIC = "magnetic field"
KIND_UNITS: Mapping[str, str] = {
    ACCELERATION: "g",
    LINEAR: "g",
    ROTATION: "rad/s",
    MAGNETIC: "uT",
}
"""Quantities of a sensor of three axes, and the unit that its values have here."""

SIZE_PROBLEMS: Mapping[str, Callable[[float], str | None]] = {
    ACCELERATION: ACCELERATION_SIZE.problem,
    ROTATION: ROTATION_SIZE.problem,
    LINEAR: LINEAR_SIZE.problem,
    MAGNETIC: MAGNETIC_SIZE.problem,
}
"""Functions by quantity, which say whether a mean magnitude can be one in its unit."""


@dataclass(frozen=True)
class Sensor:
    """Three channels that are a vector: their common name, and what they measure."""

    name: str
    kind: str

    @property
    def channels(self) -> tuple[str, ...]:
        """The names of its channels."""
        return tuple(f"{self.name}_{axis}" for axis in AXES)


OF_NINE = (
    Sensor("total_acc", ACCELERATION),
    Sensor("body_gyro", ROTATION),
    Sensor("body_acc", LINEAR),
)
"""The sensors of the nine channels, by whose names they are known wherever they come from."""


@dataclass(frozen=True)
class Signals:
    """Facts of the channels, the last axis; empty and None where they are not stated.

    channels, units: a name and a unit for each channel, in their order; sampling_hz: steps a
    second; filters: `two-way`, `causal` or `none`; sensors: which channels are vectors, and of
    what; format_sha256: the digest of the format that described the recordings.
    """

    channels: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    sampling_hz: float | None = None
    filters: str | None = None
    sensors: tuple[Sensor, ...] = ()
    format_sha256: str | None = None

    @property
    def known_sensors(self) -> tuple[Sensor, ...]:
        """The sensors that are stated, else those of the nine channels that are there by name."""
        if self.sensors:
            return self.sensors
        return tuple(sensor for sensor in OF_NINE if set(sensor.channels) <= set(self.channels))

    @property
    def vectors(self) -> tuple[int, ...] | None:
        """The first channel of each stated sensor, in order; None where none is stated."""
        if not self.sensors:
            return None
        return tuple(sorted(self.channels.index(sensor.channels[0]) for sensor in self.sensors))

    def places(self, sensor: Sensor) -> list[int]:
        """Return where the sensor's channels stand.

        Empty where one is not known, or in another unit by its own word.
        """
        if not set(sensor.channels) <= set(self.channels):
            return []
        indices = [self.channels.index(name) for name in sensor.channels]
        unit = KIND_UNITS[sensor.kind]
        if self.units and any(self.units[place] != unit for place in indices):
            return []
        return indices

    @property
    def judged(self) -> dict[Sensor, list[int]]:
        """The sensors whose sizes can be judged, accelerations with gravity first, and places."""
        sensors = [
            sensor for kind in SIZE_PROBLEMS for sensor in self.known_sensors if sensor.kind == kind
        ]
        return {sensor: places for sensor in sensors if (places := self.places(sensor))}

    @property
    def judged_alone(self) -> dict[int, str]:
        """Return by place the stated unit of a channel of no sensor whose size can be judged."""
        of_sensors = {name for sensor in self.known_sensors for name in sensor.channels}
        return {
            place: unit
            for place, (name, unit) in enumerate(zip(self.channels, self.units, strict=False))
            if unit in AXIS_SIZES and name not in of_sensors
        }

    def known_facts(self) -> dict[str, Any]:
        """The facts that are known, by name, as JSON has them."""
        facts: dict[str, Any] = {"channels": list(self.channels), "units": list(self.units)}
        facts |= {"sampling_hz": self.sampling_hz, "filters": self.filters}
        facts["sensors"] = {sensor.name: sensor.kind for sensor in self.sensors}
        facts["format_sha256"] = self.format_sha256
        return {name: value for name, value in facts.items() if value not in (None, [], {})}

    def line(self) -> str:
        """Say what is known and what is not."""
        names = {"channels": "names", "units": "units", "sampling_hz": "rate", "filters": "filters"}
        missing = [label for name, label in names.items() if name not in self.known_facts()]
        if self.sampling_hz is not None:
            facts = [f"{self.sampling_hz:g} Hz"]
        else:
            facts = []
        if self.filters is not None:
            facts.append(f"{self.filters.replace(UNFILTERED, 'no')} filters")
        facts += [f"in {', '.join(dict.fromkeys(self.units))}"] if self.units else []
        facts_line = ", ".join(facts)
        return "; ".join(
            part
            for part in (facts_line, f"not stated: {', '.join(missing)}" if missing else "")
            if part
        )

    @classmethod
    def of(cls, facts: Mapping[str, Any], width: int) -> "Signals":
        """Return the signals of `width` channels whose facts `known_facts` wrote.

        Raises ValueError for what it cannot have written.
        """
        channels, units = (tuple(map(str, facts.get(name, ()))) for name in ("channels", "units"))
        hertz = facts.get("sampling_hz")
        filters = facts.get("filters")
        if any(len(names) not in (0, width) for names in (channels, units)):
            raise ValueError(f"{len(channels)} names and {len(units)} units of {width} channels")
        if hertz is not None and not LEAST_HZ <= float(hertz) <= MOST_HZ:
            raise ValueError(f"sampling_hz {hertz!r:.40}")
        if filters not in (None, *FILTERS):
            raise ValueError(f"filters {filters!r:.40}")
        sensors = _sensors(facts.get("sensors", {}), channels)
        digest = facts.get("format_sha256")
        if digest is not None and not _DIGEST.fullmatch(str(digest)):
            raise ValueError(f"format_sha256 {digest!r:.40}")
        rate = None if hertz is None else float(hertz)
        return cls(channels, units, rate, filters, sensors, digest)

    @classmethod
    def of_manifest(cls, fields: Any) -> "Signals":
        """Return what the source of a prepared set says, and how preparing it filtered it."""
        preparation = fields.get("preparation", {})
        filters = preparation.get("filters")
        if preparation.get("nine_channels") is False:
            filters = None  # described channels are not filtered, and state it
        facts = {**fields.get("signals", {}), **({} if filters is None else {"filters": filters})}
        shape = fields["inputs"]["shape"]
        return cls.of(facts, int(shape[-1]) if shape else 0)


def _sensors(kinds: Any, channels: Sequence[str]) -> tuple[Sensor, ...]:
    """Return the sensors of a JSON object by name. Raises ValueError for other channels."""
    if not isinstance(kinds, dict):
        raise ValueError(f"sensors {kinds!r:.40}")
    sensors = tuple(Sensor(str(name), str(kind)) for name, kind in kinds.items())
    for sensor in sensors:
        if sensor.kind not in KIND_UNITS or sensor.channels[0] not in channels:
            raise ValueError(f"sensor {sensor.name!r:.40} of {sensor.kind!r:.40}")
        first = channels.index(sensor.channels[0])
        if tuple(channels[first : first + len(AXES)]) != sensor.channels:
            raise ValueError(f"sensor {sensor.name!r:.40} without three channels in a row")
    return tuple(sorted(sensors, key=lambda sensor: channels.index(sensor.channels[0])))


UNKNOWN = Signals()


def names_of(signals: Signals, width: int) -> tuple[str, ...]:
    """Return what a person sees of `width` channels: their names, else their places from 0."""
    return signals.channels or tuple(map(str, range(width)))
