"""What a client of a stream sends, checked: the first message, and the readings. Pure."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field, StringConstraints, ValidationError

from core.data.signals import Signals
from core.exported.description import Description
from core.ground.errors import UsageError, reason_of
from recognise.recogniser import settings_of
from recognise.service.limits import RequestError, StreamLimits, bad
from recognise.stream import Settings
from recognise.stream.resuming import MOST_TEXT
from recognise.stream.stream import MOST_READINGS

_COMMAS = 2 * MOST_READINGS
"""More than the largest message has for its times, and for each channel of its readings."""
MOST_CHANNELS = 256
_MOST_KEYS = 64
_MOST_COLONS = _MOST_KEYS + 2 * MOST_CHANNELS
"""Colons, one behind each key; names and units of channels may have some."""

Word = Annotated[str, StringConstraints(max_length=256)]
Value = float | None
"""JSON has no NaN: a browser writes null for a value that its sensor does not have. It becomes a
`bad_value`."""
Three = tuple[Value, Value, Value]


class _Message(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class Hello(_Message):
    """The first message of a client: what its readings are, and when it wants labels.

    With `channels` and their `units` its readings are `values` in this order; without, they are
    `acceleration` and `rotation`.
    """

    schema_: Literal[1] = Field(alias="schema")
    token: Word | None = None
    resume: Annotated[str, StringConstraints(max_length=MOST_TEXT)] | None = None
    """The state of a session that another service ended, as its event `moved` gave it."""
    acceleration_unit: Word = "g"
    rotation_unit: Word = "rad/s"
    channels: Annotated[list[Word], Field(max_length=MOST_CHANNELS)] = []
    units: Annotated[list[Word], Field(max_length=MOST_CHANNELS)] = []
    hop: int | None = Field(None, ge=1)
    votes: int = 2
    of: int = 3

    def settings(self, description: Description, limits: StreamLimits) -> Settings:
        """Return the settings of its stream. Raises RequestError."""
        if len(set(self.channels)) != len(self.channels) or len(self.units) != len(self.channels):
            raise bad(
                "channels: expected different names, and a unit for each in units, got"
                f" {', '.join(self.channels):.120} and {', '.join(self.units):.80}"
            )
        signals = None
        if self.channels:
            signals = Signals(tuple(self.channels), tuple(self.units))
        setting_names = ("acceleration_unit", "rotation_unit", "hop", "votes", "of")
        stream_settings = {name: getattr(self, name) for name in setting_names}
        return settings_within(limits, description, given=signals, **stream_settings)


def settings_within(limits: StreamLimits, description: Description, **settings: Any) -> Settings:
    """Return the settings of a stream within the limits of the service. Raises RequestError."""
    hop = settings.get("hop")
    if hop is not None and hop < limits.least_hop:
        raise bad(f"hop: expected {limits.least_hop} samples or more, got {hop}")
    try:
        return settings_of(description, **settings)
    except UsageError as problem:
        raise bad(str(problem)) from None


class Readings(_Message):
    """Readings in the order of time: seconds, acceleration and angular velocity.

    Those of a client that names its channels have `values` in the place of both.
    """

    times: Annotated[list[Value], Field(min_length=1, max_length=MOST_READINGS), FailFast()]
    acceleration: Annotated[list[Three], Field(max_length=MOST_READINGS), FailFast()] = []
    rotation: Annotated[list[Three], Field(max_length=MOST_READINGS), FailFast()] = []
    values: Annotated[
        list[Annotated[list[Value], Field(max_length=MOST_CHANNELS), FailFast()]],
        Field(max_length=MOST_READINGS),
        FailFast(),
    ] = []

    def rows(self, channels: int, *, named: bool) -> Sequence[Sequence[Value]]:
        """Return the values of each reading. Raises RequestError for others than were named."""
        if not named:
            if self.values:
                raise bad("values: expected their names as channels in the first message")
            both = zip(self.acceleration, self.rotation, strict=True)
            return [(*felt, *turned) for felt, turned in both]
        is_odd = any(len(row) != channels for row in self.values)
        if self.acceleration or is_odd or len(self.values) != len(self.times):
            raise bad(
                f"expected {channels} values of each reading in `values`, as the first message"
                " names channels"
            )
        return self.values


def hello(text: str) -> Hello:
    """Return the first message. Raises RequestError."""
    _count_keys(text)
    if text.count(",") > _MOST_KEYS + 2 * MOST_CHANNELS:
        raise RequestError(413, f"expected at most {MOST_CHANNELS} channels in the first message")
    try:
        return Hello.model_validate_json(text)
    except ValidationError as problem:
        raise bad(
            f'expected {{"schema": 1, ...}} as the first message: {_reason(problem)}'
        ) from None


def readings(text: str, channels: int = 6) -> Readings:
    """Return a message of readings of so many channels. Raises RequestError."""
    _count(text, channels)
    _count_keys(text)
    try:
        batch = Readings.model_validate_json(text)
    except ValidationError as problem:
        raise bad(
            f"expected readings (times, acceleration, rotation): {_reason(problem)}"
        ) from None
    if batch.values and len(batch.values) != len(batch.times):
        counts = f"{len(batch.times)} and {len(batch.values)}"
        raise bad(f"expected as many times as values, got {counts}")
    if not batch.values and not len(batch.times) == len(batch.acceleration) == len(batch.rotation):
        counts = f"{len(batch.times)}, {len(batch.acceleration)} and {len(batch.rotation)}"
        raise bad(f"expected as many times as acceleration and rotation, got {counts}")
    return batch


def _reason(problem: ValidationError) -> str:
    return reason_of(problem).removeprefix(": ")  # of the whole message


def _count_keys(text: str) -> None:
    """Refuse a message of very many keys: each unknown one costs an error of its own."""
    if text.count(":") > _MOST_COLONS:
        raise RequestError(413, f"expected at most {_MOST_KEYS} keys in a message")


def _count(text: str, channels: int = 6) -> None:
    if text.count(",") > _COMMAS + channels * MOST_READINGS:
        raise RequestError(413, f"expected at most {MOST_READINGS} readings in a message")
