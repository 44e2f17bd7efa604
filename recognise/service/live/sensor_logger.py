"""The JSON of the app Sensor Logger (github.com/tszheichoi/awesome-sensor-logger), checked. Pure.

The app sends accelerometer and gravity apart, in m/s^2, and the time in nanoseconds. An iPhone's signs of both are the
opposite of Android's, unless "Standardise Units & Frames" is on; rotation has the same signs. The training's
recordings have Android's.
"""

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from cluster.errors import UsageError, reason_of
from cluster.exported.description import Description
from recognise.recogniser import settings_of
from recognise.service.limits import StreamLimits
from recognise.service.refusals import bad
from recognise.stream import Settings, intake

ACCELEROMETER, TOTAL, GRAVITY, GYROSCOPE = "accelerometer", "totalacceleration", "gravity", "gyroscope"
SENSORS = (ACCELEROMETER, TOTAL, GRAVITY, GYROSCOPE)
LARGEST_VALUE = 10 * intake.LARGEST_VALUE
"""In the app's units, of which ten are more than one of the stream's, which refuses what is between.

JSON's 1e999 is infinite, and what takes the sensors together would compute with it."""
MOST_ENTRIES = 16_384
"""Of one post, those of other sensors included."""
NANOSECONDS = 1e-9
_APPLE = ("CFNetwork", "Darwin", "iPhone")
"""Of the header User-Agent of a program on an iPhone."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class _Entry(_Part):
    name: Name
    time: Annotated[int, Field(ge=0, lt=2**63)]
    values: Any = None
    x: Any = None
    y: Any = None
    z: Any = None

    @property
    def vector(self) -> Any:
        """The three numbers: the app writes them as `values`, its documentation shows them beside the time."""
        return {"x": self.x, "y": self.y, "z": self.z} if self.values is None else self.values


class _Vector(_Part):
    x: float | None
    y: float | None
    z: float | None


class Post(_Part):
    """One post of the app; keys that are not here are left."""

    session: Name = Field(alias="sessionId")
    payload: Annotated[list[_Entry], Field(max_length=MOST_ENTRIES)]


class Query(BaseModel):
    """What the address may say behind `?`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    platform: Literal["android", "ios", "standard"] | None = None
    acceleration_unit: Name = "m/s2"
    hop: int | None = Field(None, ge=1)
    votes: int = 2
    of: int = 3

    def settings(self, description: Description, limits: StreamLimits) -> Settings:
        """The settings of its stream. Raises RefusedError."""
        if self.hop is not None and self.hop < limits.least_hop:
            raise bad(f"hop: expected {limits.least_hop} samples or more, got {self.hop}")
        try:
            return settings_of(
                description, hop=self.hop, votes=self.votes, of=self.of, acceleration_unit=self.acceleration_unit
            )
        except UsageError as problem:
            raise bad(str(problem)) from None

    def sign(self, agent: str) -> float:
        """-1.0 where acceleration has an iPhone's signs. Raises RefusedError where nothing says which they are."""
        if self.platform is None and any(word in agent for word in _APPLE):
            raise bad(
                "an iPhone: expected ?platform=ios behind the address, or ?platform=standard with the app's "
                "`Standardise Units & Frames`: the signs of acceleration differ"
            )
        return -1.0 if self.platform == "ios" else 1.0


def post(body: bytes) -> Post:
    """A post. Raises RefusedError."""
    try:
        return Post.model_validate_json(body)
    except ValidationError as problem:
        raise bad(f"expected a post of Sensor Logger: {reason_of(problem).removeprefix(': ')}") from None


def query(given: dict[str, str]) -> Query:
    """What stands behind the `?`. Raises RefusedError."""
    try:
        return Query.model_validate(given)
    except ValidationError as problem:
        raise bad(f"the address behind `?`: {reason_of(problem)}") from None


def by_sensor(given: Post) -> dict[str, list[tuple[float, float, float, float]]]:
    """Time in seconds and x, y, z of each of our sensors, in the order of arrival. Raises RefusedError.

    NaN stands for a value that is missing or no sensor's: its reading becomes a `bad_value`.
    """
    found: dict[str, list[tuple[float, float, float, float]]] = {}
    for entry in given.payload:
        name = entry.name.lower()
        if name not in SENSORS:
            continue
        try:
            vector = _Vector.model_validate(entry.vector)
        except ValidationError as problem:
            raise bad(f"{name}: values: expected x, y and z: {reason_of(problem)}") from None
        x, y, z = _sane(vector.x), _sane(vector.y), _sane(vector.z)
        found.setdefault(name, []).append((entry.time * NANOSECONDS, x, y, z))
    return found


def _sane(value: float | None) -> float:
    return math.nan if value is None or not abs(value) <= LARGEST_VALUE else value
