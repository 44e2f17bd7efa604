"""Devices at a broker of MQTT: each has a session, whose answers are published.

`PREFIX/DEVICE/readings` has the messages of `/v1/stream`, `PREFIX/DEVICE/sensor-logger/PLATFORM`
the app's posts.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

import pydantic_core

from core.control.door import RateLimitedLog
from core.errors import UsageError
from recognise.service.bodies import Budget
from recognise.service.limits import RequestError, bad
from recognise.service.live import sensor_logger
from recognise.service.live.messages import Readings, StreamRequest, readings_as
from recognise.service.live.phones import PhoneRecording, phone
from recognise.service.live.recordings import Recording, RecordingRegistry
from recognise.service.live.session import LiveSession
from recognise.service.live.sockets import BUSY, close_code
from recognise.service.serving import Serving

log = logging.getLogger(__name__)

READINGS = "readings"
SENSOR_LOGGER = "sensor-logger"
EVENTS = "events"
PLATFORMS = ("android", "ios", "standard")
LONGEST_DEVICE = 128
MOST_AT_ONCE = 512
"""Messages that came and are not answered; later ones are left."""

Publish = Callable[[str, bytes], Awaitable[None]]


class DeviceMessage(StreamRequest, Readings):
    """Readings, and what the first ones of a device may say about all of them."""


class DeviceRecording(Recording[Readings]):
    """One device's readings."""

    def readings(self, given: Readings) -> tuple[int, Iterable[Readings], list[dict[str, Any]]]:
        """Return the readings as they are."""
        return len(given.times), (given,), []


class Topic(NamedTuple):
    """The device and the kind of a message; only the app's messages have a platform."""

    device: str
    kind: str
    platform: str = ""


def topic_of(prefix: str, name: str) -> Topic:
    """Return the parts of a topic that was subscribed. Raises RequestError."""
    device, _, rest = name.removeprefix(f"{prefix}/").partition("/")
    kind, _, platform = rest.partition("/")
    if len(device) > LONGEST_DEVICE or not device.isprintable():
        raise bad(f"the topic: expected a device of at most {LONGEST_DEVICE} printable characters")
    if kind == SENSOR_LOGGER and platform not in PLATFORMS:
        raise bad(f"the topic: expected {', '.join(PLATFORMS)} at its end, got {platform!r:.40}")
    return Topic(device, kind, platform)


class Devices:
    """All devices of one broker, over one model."""

    def __init__(self, prefix: str, serving: Serving, budget: Budget, publish: Publish) -> None:
        """`budget` is that of all bodies; `publish` sends a message to a topic."""
        self._budget = budget
        self._prefix = prefix
        self._publish = publish
        self._serving = serving
        self._metrics = serving.metrics
        self._limits = serving.limits
        self._devices: RecordingRegistry[DeviceRecording] = RecordingRegistry(serving.limits)
        self._phones: RecordingRegistry[PhoneRecording] = RecordingRegistry(serving.limits)
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
        """Take a message that has come.

        Its answer is published later, and those of one device in their order.
        """
        if len(self._tasks) >= MOST_AT_ONCE:
            self._metrics.session_refused(BUSY)
            self._log.say(
                f"{MOST_AT_ONCE} messages of devices wait for their answer: one of {name!r:.200} is"
                " left"
            )
            return
        size = len(payload)
        try:
            self._budget.take(size)
        except RequestError as problem:
            self._metrics.session_refused(BUSY)
            self._log.say(f"a message of {name!r:.200} is left: {problem.words}")
            return
        task = asyncio.get_running_loop().create_task(self._answered(name, payload))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._budget.give(size))

    async def _answered(self, name: str, payload: bytes) -> None:
        device = name.removeprefix(f"{self._prefix}/").partition("/")[0][:LONGEST_DEVICE]
        try:
            events = await self._events(topic_of(self._prefix, name), payload)
        except RequestError as problem:
            self._metrics.session_refused(close_code(problem))
            events = [{"event": "refused", "error": problem.words}]
        except UsageError as problem:
            events = [{"event": "refused", "error": str(problem)}]
        except Exception as problem:
            self._log.say(
                f"a message of {device!r} failed: {type(problem).__name__}: {problem!s:.300}"
            )
            return
        for event in events:
            await self._publish(f"{self._prefix}/{device}/{EVENTS}", pydantic_core.to_json(event))

    async def _events(self, topic: Topic, payload: bytes) -> list[dict[str, Any]]:
        most = self._limits.streams.message_bytes
        if len(payload) > most:
            raise RequestError(
                413, f"expected a message of at most {most} bytes, got {len(payload)}"
            )
        if topic.kind == SENSOR_LOGGER:
            return await self._of_phone(topic, payload)
        given = readings_as(DeviceMessage, payload)

        def begin() -> DeviceRecording:
            settings = given.settings(self._serving.current.description, self._limits.streams)
            return DeviceRecording(LiveSession("mqtt", settings, self._serving), self._limits)

        return (await self._devices.take(topic.device, given, begin))[1]

    async def _of_phone(self, topic: Topic, payload: bytes) -> list[dict[str, Any]]:
        given = sensor_logger.post(payload)
        query = sensor_logger.query({"platform": topic.platform})

        def begin() -> PhoneRecording:
            return phone(query, query.sign(""), "mqtt", self._serving)

        return (await self._phones.take(f"{topic.device}/{given.session}", given, begin))[1]
