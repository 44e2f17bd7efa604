"""Recordings of the app Sensor Logger: sessions without a connection, over after a silence.

A post brings readings, and takes the events since the post before.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

from recognise.service.limits import Limits, RequestError
from recognise.service.live import sensor_logger
from recognise.service.live.merging import Merging
from recognise.service.live.messages import Readings
from recognise.service.live.session import LiveSession, Rate
from recognise.service.places import SessionPlaces, given_way
from recognise.stream import as_json
from recognise.stream.stream import MOST_READINGS

log = logging.getLogger(__name__)

POSTS_TO_BEGIN = 3
MOST_EVENTS = 1024
"""Events that one recording keeps until its client takes them; the oldest go."""


class PhoneRecording:
    """One recording of the app: its session, its sensors, and the events that it has not taken."""

    def __init__(self, session: LiveSession, sign: float, of_watch: float, limits: Limits) -> None:
        self.lock = asyncio.Lock()
        self.heard = perf_counter()
        self.session = session
        streams = limits.streams
        self._rate = Rate(
            "readings", streams.readings_per_second, streams.burst_readings, self.heard
        )
        self._events: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        beside = sensor_logger.sensors_beside(session.settings.signals)
        names = [sensor_logger.BESIDE[kind][0] for kind in beside]
        self.merging = Merging(sign, session.settings.longest_gap_seconds, names)
        self.source: str | None = None
        """The owner of the recording's sensors, `phone` or `watch`: that of the first ones."""
        self._of_watch = of_watch
        self._posts = 0
        self._hearing = asyncio.ensure_future(self._hear())

    async def take(self, post: sensor_logger.Post) -> list[dict[str, Any]]:
        """Return the events up to these readings.

        Raises RequestError; the recording then begins again.
        """
        arrived = self.heard
        count, batches, events = self._readings(post)
        self._rate.take(count, arrived)
        self._events += events
        for batch in batches:
            await self.session.take(batch, arrived)
        answered = asyncio.ensure_future(self.session.answered())
        try:
            await asyncio.wait({answered, self._hearing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answered.cancel()
        if self._hearing.cancelled():
            raise given_way()
        if self._hearing.done():
            self._hearing.result()
        events = list(self._events)
        self._events.clear()
        return events

    def close(self) -> None:
        """Leave it. Once."""
        self._hearing.cancel()
        self.session.close()

    async def _hear(self) -> None:
        while True:
            self._events += await self.session.events()

    def _readings(
        self, post: sensor_logger.Post
    ) -> tuple[int, Iterator[Readings], list[dict[str, Any]]]:
        """Return how many readings this post completes, these in batches, and their own events."""
        self.source = self.source or post.source
        sensors = sensor_logger.by_sensor(post, self.source, self._of_watch)
        readings, faults = self.merging.add(sensors)
        self._posts += 1

        def batches() -> Iterator[Readings]:
            for at in range(0, len(readings), MOST_READINGS):
                rows = readings[at : at + MOST_READINGS]
                yield Readings.model_construct(
                    times=rows[:, 0].tolist(), values=rows[:, 1:].tolist()
                )

        return len(readings), batches(), [*(as_json(fault) for fault in faults), *self._missing()]

    def _missing(self) -> list[dict[str, Any]]:
        """Return the sensors that have sent nothing, as an event.

        It comes once, after the posts in which every sensor begins.
        """
        missing = self.merging.missing
        if self._posts != POSTS_TO_BEGIN or not missing:
            return []
        names = ", ".join(missing)
        log.warning(
            "a recording of Sensor Logger gets no label without %s: turn it on in the app", names
        )
        return [
            {
                "event": "missing",
                "sensors": missing,
                "detail": f"no label without {names}: turn it on in the app",
            }
        ]


class RecordingRegistry:
    """The recordings of the app, by name."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[str, PhoneRecording] = {}
        self._places = SessionPlaces(limits.streams.sessions)
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def close(self) -> None:
        """Leave all of them."""
        for name in list(self._open):
            self._end(name)

    async def take(
        self,
        name: str,
        post: sensor_logger.Post,
        begin: Callable[[], PhoneRecording],
        address: str = "",
    ) -> tuple[PhoneRecording, list[dict[str, Any]]]:
        """Return the recording of that name, begun where there is none, and its events.

        `address` is its client's. Raises RequestError.
        """
        recording = self._open.get(name) or self._begin(name, begin, address)
        async with recording.lock:
            recording.heard = perf_counter()
            try:
                return recording, await recording.take(post)
            except RequestError:
                self._end(name)
                raise

    def _begin(
        self, name: str, begin: Callable[[], PhoneRecording], address: str
    ) -> PhoneRecording:
        self._places.enter(name, address, lambda: self._end(name))
        try:
            recording = self._open[name] = begin()
        except RequestError:
            self._places.leave(name)
            raise
        self._look_after(name, self._limits.streams.idle_seconds)
        return recording

    def _look_after(self, name: str, seconds: float) -> None:
        self._timers[name] = asyncio.get_running_loop().call_later(seconds, self._look, name)

    def _look(self, name: str) -> None:
        recording = self._open[name]
        idle = self._limits.streams.idle_seconds
        remaining_seconds = recording.heard + idle - perf_counter()
        if remaining_seconds <= 0 and not recording.lock.locked():
            self._end(name)
        else:
            self._look_after(name, max(remaining_seconds, 1.0))

    def _end(self, name: str) -> None:
        recording = self._open.pop(name, None)
        if recording is None:  # another message of it was refused before
            return
        self._places.leave(name)
        self._timers.pop(name).cancel()
        recording.close()
