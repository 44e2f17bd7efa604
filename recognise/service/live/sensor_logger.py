"""The JSON of the app Sensor Logger (github.com/tszheichoi/awesome-sensor-logger), checked. Pure.

The app sends accelerometer and gravity apart, in m/s^2, and the time in nanoseconds. An iPhone's
signs of both are the opposite of Android's, unless "Standardise Units & Frames" is on; rotation has
the same signs. The training's recordings have Android's.

A watch sends all of them in one entry, `wrist motion`: in g from an Apple Watch, unless
"Standardise Units & Frames" is on. Source of the names and units: UNITS.md and CROSSPLATFORM.md
there.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from core.data import intake
from core.data.filters import inputs_of, signals_of_device
from core.data.signals import ACCELERATION, MAGNETIC, ROTATION, Signals
from core.exported.description import Description
from core.ground.errors import UsageError, reason_of
from core.ground.plausible import STANDARD_GRAVITY
from recognise.plausibility import signals_of
from recognise.service.limits import StreamLimits, bad
from recognise.service.live.messages import settings_within
from recognise.stream import Settings

ACCELEROMETER = "accelerometer"
TOTAL = "totalacceleration"
GRAVITY = "gravity"
GYROSCOPE = "gyroscope"
MAGNETOMETER = "magnetometer"
SENSORS = (ACCELEROMETER, TOTAL, GRAVITY, GYROSCOPE, MAGNETOMETER)
BESIDE: Mapping[str, tuple[str, str]] = {
    ROTATION: (GYROSCOPE, "rad/s"),
    MAGNETIC: (MAGNETOMETER, "uT"),
}
"""Sensors by what they measure beside acceleration: the name, and the unit of the values."""
WRIST = "wristmotion"
"""The name without its space, as in the app's files."""
PHONE = "phone"
WATCH = "watch"
_OF_WATCH = {ACCELEROMETER: "acceleration", GRAVITY: "gravity", GYROSCOPE: "rotationRate"}
"""The names of a watch's values begin so; X, Y and Z follow."""
LARGEST_VALUE = 10 * intake.LARGEST_VALUE
"""Value in the app's units, ten of which are more than one of the stream's, which refuses what is
between.

JSON's 1e999 is infinite, and what takes the sensors together would compute with it."""
MOST_ENTRIES = 16_384
"""Entries of one post at most, with those of other sensors."""
NANOSECONDS = 1e-9
_APPLE = ("CFNetwork", "Darwin", "iPhone")
"""Words in the header User-Agent of a program on an iPhone."""

Row = tuple[float, float, float, float]
Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class _Entry(_Part):
    model_config = ConfigDict(strict=True, frozen=True, extra="allow")

    name: Name
    time: Annotated[int, Field(ge=0, lt=2**63)]
    values: Any = None

    @property
    def vector(self) -> Any:
        """The numbers, which the app writes as `values` and its documentation beside the time."""
        if self.values is None:
            return self.model_extra
        return self.values


class _Vector(_Part):
    x: float | None
    y: float | None
    z: float | None


class Post(_Part):
    """One post of the app; keys that are not here are left."""

    session: Name = Field(alias="sessionId")
    payload: Annotated[
        list[Annotated[_Entry | Any, Field(union_mode="left_to_right")]],
        Field(max_length=MOST_ENTRIES),
    ]
    """Entries; what is none of ours may be anything, and costs no other one."""

    @property
    def source(self) -> str | None:
        """The owner of these sensors, `phone` or `watch`; None without sensors of ours.

        Where both are, it is the phone.
        """
        names = {_name_of(entry) for entry in self.payload}
        if names & set(SENSORS):
            return PHONE
        if WRIST in names:
            return WATCH
        return None


class Query(BaseModel):
    """What the address may say behind `?`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    platform: Literal["android", "ios", "standard"] | None = None
    acceleration_unit: Name = "m/s2"
    hop: int | None = Field(None, ge=1)
    votes: int = 2
    of: int = 3

    def settings(self, description: Description, limits: StreamLimits) -> Settings:
        """Return the settings of its stream, for the sensors that the model takes.

        Raises RequestError.
        """
        beside = sensors_beside(signals_of(description))
        units = [self.acceleration_unit, *(BESIDE[kind][1] for kind in beside)]
        try:
            signals = signals_of_device(signals_of(description), (ACCELERATION, *beside), units)
        except UsageError as problem:
            raise bad(str(problem)) from None
        stream_settings = self.model_dump(exclude={"platform"})
        return settings_within(limits, description, given=signals, **stream_settings)

    @property
    def of_watch(self) -> float:
        """The factor from a watch's acceleration to the session's unit: an Apple Watch sends g."""
        is_in_g = self.platform == "ios" and self.acceleration_unit == "m/s2"
        if is_in_g:
            return STANDARD_GRAVITY
        return 1.0

    def sign(self, agent: str) -> float:
        """Return -1.0 where acceleration has an iPhone's signs, else 1.0.

        Raises RequestError where nothing says which they are.
        """
        if self.platform is None and any(word in agent for word in _APPLE):
            raise bad(
                "an iPhone: expected ?platform=ios behind the address, or ?platform=standard with"
                " the app's `Standardise Units & Frames`: the signs of acceleration differ"
            )
        if self.platform == "ios":
            return -1.0
        return 1.0


def sensors_beside(model: Signals) -> tuple[str, ...]:
    """Return what else than acceleration the model takes of a phone."""
    kinds = {sensor.kind for sensor in inputs_of(model).sensors}
    return tuple(kind for kind in BESIDE if kind in kinds)


def post(body: bytes | bytearray) -> Post:
    """Return a post. Raises RequestError."""
    try:
        return Post.model_validate_json(body)
    except ValidationError as problem:
        raise bad(
            f"expected a post of Sensor Logger: {reason_of(problem).removeprefix(': ')}"
        ) from None


def query(parameters: dict[str, str]) -> Query:
    """Return what stands behind the `?`. Raises RequestError."""
    try:
        return Query.model_validate(parameters)
    except ValidationError as problem:
        raise bad(f"the address behind `?`: {reason_of(problem)}") from None


def by_sensor(
    message: Post, source: str | None = PHONE, of_watch: float = 1.0
) -> dict[str, list[Row]]:
    """Return time in seconds and x, y, z of each of our sensors, in the order of arrival.

    Raises RequestError.

    source: whose sensors count; of_watch: factor from a watch's unit of acceleration to the
    session's. NaN stands for a value that is missing or no sensor's: its reading becomes a
    `bad_value`.
    """
    rows: dict[str, list[Row]] = {}
    sensor_names = (WRIST,) if source == WATCH else SENSORS
    for place, payload_entry in enumerate(message.payload):
        name = _name_of(payload_entry)
        if name not in sensor_names:
            continue
        entry = _checked(place, payload_entry)
        if name != WRIST:
            rows.setdefault(name, []).append(
                (entry.time * NANOSECONDS, *_three(name, entry.vector, "", "xyz"))
            )
            continue
        for sensor, begin in _OF_WATCH.items():
            x, y, z = _three(name, entry.vector, begin, "XYZ")
            factor = 1.0 if sensor == GYROSCOPE else of_watch
            rows.setdefault(sensor, []).append(
                (entry.time * NANOSECONDS, factor * x, factor * y, factor * z)
            )
    return rows


def _name_of(entry: Any) -> str:
    """Return the entry's name in small letters and without spaces, or an empty text."""
    name = entry.get("name") if isinstance(entry, dict) else getattr(entry, "name", None)
    return name.lower().replace(" ", "") if isinstance(name, str) else ""


def _checked(place: int, entry: Any) -> _Entry:
    if isinstance(entry, _Entry):
        return entry
    try:
        return _Entry.model_validate(entry)
    except ValidationError as problem:
        raise bad(
            f"expected a post of Sensor Logger: payload.{place}.{reason_of(problem)}"
        ) from None


def _three(name: str, values: Any, begin: str, axes: str) -> tuple[float, float, float]:
    """Return three numbers of an entry. Raises RequestError."""
    if isinstance(values, dict):
        coordinates = {axis.lower(): values.get(begin + axis, ...) for axis in axes}
    else:
        coordinates = values
    try:
        vector = _Vector.model_validate(coordinates)
    except ValidationError as problem:
        expected = ", ".join(begin + axis for axis in axes)
        raise bad(f"{name}: values: expected {expected}: {reason_of(problem)}") from None
    return _sane(vector.x), _sane(vector.y), _sane(vector.z)


def _sane(value: float | None) -> float:
    if value is None or not abs(value) <= LARGEST_VALUE:
        return math.nan
    return value
