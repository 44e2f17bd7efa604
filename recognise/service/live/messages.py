"""What a client of a stream sends, checked: the first message, and the readings. Pure."""

import hmac
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from cluster.errors import UsageError, reason_of
from cluster.exported.description import Description
from recognise.recogniser import settings_of
from recognise.service.limits import StreamLimits
from recognise.service.refusals import RefusedError, bad
from recognise.stream import Settings
from recognise.stream.resuming import MOST_TEXT
from recognise.stream.stream import MOST_READINGS

_COMMAS = 8 * MOST_READINGS
"""More than the largest message of readings has."""

Word = Annotated[str, StringConstraints(max_length=256)]
Value = float | None
"""JSON has no NaN: a browser writes null for a value that its sensor does not have. It becomes a `bad_value`."""
Three = tuple[Value, Value, Value]


class _Message(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class Hello(_Message):
    """The first message of a client: what its readings are, and what it wants."""

    schema_: Literal[1] = Field(alias="schema")
    token: Word | None = None
    acceleration_unit: Word = "g"
    rotation_unit: Word = "rad/s"
    hop: int | None = Field(None, ge=1)
    votes: int = 2
    of: int = 3
    resume: Annotated[str, StringConstraints(max_length=MOST_TEXT)] | None = None
    """The state of a session that another service ended, as its event `moved` gave it."""

    def may_come(self, token: str) -> bool:
        """Whether it names the token of the service; compared in constant time."""
        return self.token is not None and hmac.compare_digest(self.token.encode(), token.encode())

    def settings(self, description: Description, limits: StreamLimits) -> Settings:
        """The settings of its stream. Raises RefusedError."""
        if self.hop is not None and self.hop < limits.least_hop:
            raise bad(f"hop: expected {limits.least_hop} samples or more, got {self.hop}")
        try:
            return settings_of(
                description, hop=self.hop, votes=self.votes, of=self.of,
                acceleration_unit=self.acceleration_unit, rotation_unit=self.rotation_unit,
            )  # fmt: skip
        except UsageError as problem:
            raise bad(str(problem)) from None


class Readings(_Message):
    """Readings in the order of time: seconds, acceleration and angular velocity."""

    times: Annotated[list[Value], Field(min_length=1, max_length=MOST_READINGS)]
    acceleration: Annotated[list[Three], Field(max_length=MOST_READINGS)]
    rotation: Annotated[list[Three], Field(max_length=MOST_READINGS)]


def hello(text: str) -> Hello:
    """The first message. Raises RefusedError."""
    _count(text)
    try:
        return Hello.model_validate_json(text)
    except ValidationError as problem:
        raise bad(f'expected {{"schema": 1, ...}} as the first message: {_reason(problem)}') from None


def readings(text: str) -> Readings:
    """A message of readings. Raises RefusedError."""
    _count(text)
    try:
        found = Readings.model_validate_json(text)
    except ValidationError as problem:
        raise bad(f"expected readings (times, acceleration, rotation): {_reason(problem)}") from None
    refuse_uneven(found)
    return found


def refuse_uneven(given: Readings) -> None:
    """Raise RefusedError unless each reading has a time, an acceleration and a rotation."""
    if not len(given.times) == len(given.acceleration) == len(given.rotation):
        counts = f"{len(given.times)}, {len(given.acceleration)} and {len(given.rotation)}"
        raise bad(f"expected as many times as acceleration and rotation, got {counts}")


def _reason(problem: ValidationError) -> str:
    return reason_of(problem).removeprefix(": ")  # of the whole message


def _count(text: str) -> None:
    if text.count(",") > _COMMAS:
        raise RefusedError(413, f"expected at most {MOST_READINGS} readings in a message")
