"""What devices publish at a broker of MQTT: a session for each, and what is published as its answer.

`PREFIX/DEVICE/readings` has the messages of `/v1/stream`, `PREFIX/DEVICE/sensor-logger/PLATFORM` the app's posts.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

import pydantic_core
from pydantic import Field, ValidationError

from cluster.control.door import RateLimitedLog
from cluster.errors import UsageError, reason_of
from recognise.service.limits import Limits
from recognise.service.live import sensor_logger
from recognise.service.live.messages import Hello, Readings, Word, refuse_uneven
from recognise.service.live.phones import Phone, phone
from recognise.service.live.recordings import Recording, Recordings
from recognise.service.live.session import Session
from recognise.service.live.sockets import BUSY, POLICY, TOO_LARGE
from recognise.service.metrics import ServiceMetrics
from recognise.service.refusals import RefusedError, bad
from recognise.service.serving import Serving

log = logging.getLogger(__name__)

READINGS, SENSOR_LOGGER, EVENTS = "readings", "sensor-logger", "events"
PLATFORMS = ("android", "ios", "standard")
LONGEST_DEVICE = 128
MOST_AT_ONCE = 512
"""Messages that came and are not answered; later ones are left."""

Publish = Callable[[str, bytes], Awaitable[None]]


class Published(Readings):
    """Readings, and what the first ones of a device may say about all of them."""

    acceleration_unit: Word = "g"
    rotation_unit: Word = "rad/s"
    hop: int | None = Field(None, ge=1)
    votes: int = 2
    of: int = 3

    @classmethod
    def of_message(cls, payload: bytes) -> "Published":
        """A message of a device. Raises RefusedError."""
        try:
            found = cls.model_validate_json(payload)
        except ValidationError as problem:
            raise bad(f"expected readings (times, acceleration, rotation): {reason_of(problem)}") from None
        refuse_uneven(found)
        return found

    def hello(self) -> Hello:
        """The first message that a WebSocket would have sent."""
        return Hello.model_validate({"schema": 1, **self.model_dump(include=set(Hello.model_fields) - {"schema_"})})


class Device(Recording[Readings]):
    """One device's readings."""

    def readings(self, given: Readings) -> tuple[int, Iterable[Readings], list[dict[str, Any]]]:
        """See `Recording`."""
        return len(given.times), (given,), []


class Topic(NamedTuple):
    """Whose message it is, and of which kind; `platform` is of the app's alone."""

    device: str
    kind: str
    platform: str = ""


def topic_of(prefix: str, name: str) -> Topic:
    """The parts of a topic that was subscribed. Raises RefusedError."""
    device, _, rest = name.removeprefix(f"{prefix}/").partition("/")
    kind, _, platform = rest.partition("/")
    if len(device) > LONGEST_DEVICE or not device.isprintable():
        raise bad(f"the topic: expected a device of at most {LONGEST_DEVICE} printable characters")
    if kind == SENSOR_LOGGER and platform not in PLATFORMS:
        raise bad(f"the topic: expected {', '.join(PLATFORMS)} at its end, got {platform!r:.40}")
    return Topic(device, kind, platform)


class Devices:
    """All devices of one broker, over one model."""

    def __init__(
        self, prefix: str, serving: Serving, metrics: ServiceMetrics, limits: Limits, publish: Publish
    ) -> None:
        """`publish` sends a message to a topic."""
        self._prefix, self._publish = prefix, publish
        self._serving, self._metrics, self._limits = serving, metrics, limits
        self._devices: Recordings[Device] = Recordings(limits)
        self._phones: Recordings[Phone] = Recordings(limits)
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = RateLimitedLog(log, logging.WARNING)

    def close(self) -> None:
        """Leave all sessions."""
        for task in self._tasks:
            task.cancel()
        self._devices.close()
        self._phones.close()

    @property
    def filters(self) -> tuple[str, ...]:
        """The topics to subscribe to."""
        return f"{self._prefix}/+/{READINGS}", f"{self._prefix}/+/{SENSOR_LOGGER}/+"

    def take(self, name: str, payload: bytes) -> None:
        """A message has come. Its answer is published later, and those of one device in their order."""
        if len(self._tasks) >= MOST_AT_ONCE:
            self._metrics.session_refused(BUSY)
            self._log.say(f"{MOST_AT_ONCE} messages of devices wait for their answer: one of {name!r:.200} is left")
            return
        task = asyncio.get_running_loop().create_task(self._answered(name, payload))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answered(self, name: str, payload: bytes) -> None:
        device = name.removeprefix(f"{self._prefix}/").partition("/")[0][:LONGEST_DEVICE]
        try:
            events = await self._events(topic_of(self._prefix, name), payload)
        except RefusedError as problem:
            self._metrics.session_refused({413: TOO_LARGE, 503: BUSY}.get(problem.status, POLICY))
            events = [{"event": "refused", "error": problem.words}]
        except UsageError as problem:
            events = [{"event": "refused", "error": str(problem)}]
        except Exception as problem:
            self._log.say(f"a message of {device!r} failed: {type(problem).__name__}: {problem!s:.300}")
            return
        for event in events:
            await self._publish(f"{self._prefix}/{device}/{EVENTS}", pydantic_core.to_json(event))

    async def _events(self, topic: Topic, payload: bytes) -> list[dict[str, Any]]:
        most = self._limits.streams.message_bytes
        if len(payload) > most:
            raise RefusedError(413, f"expected a message of at most {most} bytes, got {len(payload)}")
        if topic.kind == SENSOR_LOGGER:
            return await self._of_phone(topic, payload)
        given = Published.of_message(payload)

        def begin() -> Device:
            settings = given.hello().settings(self._serving.current.description, self._limits.streams)
            return Device(Session("mqtt", settings, self._serving, self._metrics, self._limits), self._limits)

        return (await self._devices.take(topic.device, given, begin))[1]

    async def _of_phone(self, topic: Topic, payload: bytes) -> list[dict[str, Any]]:
        given = sensor_logger.post(payload)
        query = sensor_logger.query({"platform": topic.platform})

        def begin() -> Phone:
            return phone(query, query.sign(""), "mqtt", self._serving, self._metrics, self._limits)

        return (await self._phones.take(f"{topic.device}/{given.session}", given, begin))[1]
