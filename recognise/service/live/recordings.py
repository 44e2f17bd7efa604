"""Recordings of the app Sensor Logger: sessions without a connection, over after a silence.

A post brings readings, and takes the events since the post before. Sensors have times of their own;
readings have those of the acceleration, and the others are taken linearly between two neighbours.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
import pydantic_core
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from recognise.service.limits import (
    Budget,
    Limits,
    RequestError,
    SessionPlaces,
    address_of,
    given_way,
    whole_body,
)
from recognise.service.live import sensor_logger
from recognise.service.live.messages import Readings
from recognise.service.live.sensor_logger import ACCELEROMETER, GRAVITY, GYROSCOPE, TOTAL
from recognise.service.live.session import LiveSession, Rate
from recognise.service.serving import Serving
from recognise.stream import InputFault, as_json
from recognise.stream.stream import MOST_READINGS

Rows = NDArray[np.float64]
"""(n, 4): seconds, x, y, z."""

MOST_WAITING = 8192
"""Rows of one sensor that wait for another; the oldest go."""
_NO_ROWS: Rows = np.empty((0, 4))
_JUMP_SECONDS = 10.0
"""A whole post that is so much older than the one before: the phone's clock went back."""


class Merging:
    """The sensors of one phone, and their rows that wait for another sensor."""

    def __init__(
        self, sign: float, longest_gap_seconds: float, beside: Sequence[str] = (GYROSCOPE,)
    ) -> None:
        """`sign` is -1.0 where acceleration has an iPhone's signs.

        beside: the sensors beside it, in the order that the readings have.
        """
        self._sign = sign
        self._beside = tuple(beside)
        self._gap = longest_gap_seconds
        self._rows: dict[str, Rows] = {}
        self._has_total = False
        self._until = -np.inf
        """The time before which no reading is taken any more."""

    @property
    def _base(self) -> str:
        """The sensor whose times the readings have."""
        return TOTAL if self._has_total else ACCELEROMETER

    @property
    def _others(self) -> tuple[str, ...]:
        """The sensors that are taken at those times."""
        return self._beside if self._has_total else (GRAVITY, *self._beside)

    @property
    def missing(self) -> list[str]:
        """Sensors without which there is no label, and that have sent nothing."""
        required_sensors = self._others if self._has_total else (ACCELEROMETER, *self._others)
        return [name for name in required_sensors if name not in self._rows]

    def add(
        self, sensors: Mapping[str, Sequence[tuple[float, float, float, float]]]
    ) -> tuple[Rows, list[InputFault]]:
        """Return the complete readings, and faults.

        A reading is its time, acceleration and the sensors beside it, (n, 4 + 3 each). Rows that
        are older than readings which went before are dropped, with a fault `late`.
        """
        self._has_total |= TOTAL in sensors
        rows_by_sensor = {name: np.array(rows, np.float64) for name, rows in sensors.items()}
        if self._has_total:
            rows_by_sensor.pop(ACCELEROMETER, None)
            rows_by_sensor.pop(GRAVITY, None)
        if (
            rows_by_sensor
            and max(rows[:, 0].max() for rows in rows_by_sensor.values())
            < self._until - _JUMP_SECONDS
        ):
            self._rows.clear()
            self._until = -np.inf
        faults = []
        for name, rows in rows_by_sensor.items():
            if name == self._base:
                is_late = rows[:, 0] <= self._until
                rows = rows[~is_late]
                if is_late.any():
                    dropped = f"dropped {is_late.sum()} readings that are older than those before"
                    faults.append(dropped)
            joined = np.concatenate([self._rows.get(name, _NO_ROWS), rows])
            self._rows[name] = joined[np.argsort(joined[:, 0], kind="stable")][-MOST_WAITING:]
        return self._complete(), [InputFault("late", self._until, detail) for detail in faults]

    def _complete(self) -> Rows:
        nothing = np.empty((0, 4 + 3 * len(self._beside)))
        base, *other_rows = (self._rows.get(name, _NO_ROWS) for name in (self._base, *self._others))
        if not len(base) or not all(map(len, other_rows)):
            return nothing
        end = min([float(other[-1, 0]) for other in other_rows], default=float(base[-1, 0]))
        ready = base[base[:, 0] <= end]
        if not len(ready):
            return nothing
        self._until = float(ready[-1, 0])
        self._rows[self._base] = base[len(ready) :]
        for name, other in zip(self._others, other_rows, strict=True):
            self._rows[name] = _from(other, self._until)
        values = [self._between(other, ready[:, 0]) for other in other_rows]
        is_good = np.all([np.ones(len(ready), np.bool_), *(good for _, good in values)], axis=0)
        acceleration = ready[:, 1:]
        if not self._has_total:
            acceleration = acceleration + values[0][0]  # gravity
        beside = [interpolated for interpolated, _ in values[len(values) - len(self._beside) :]]
        columns = [ready[:, :1], self._sign * acceleration, *beside]
        return np.concatenate(columns, axis=1)[is_good]

    def _between(self, rows: Rows, times: Rows) -> tuple[Rows, NDArray[np.bool_]]:
        """Return the values at these times, and whether the neighbours are near enough to know."""
        after = np.searchsorted(rows[:, 0], times, side="left")
        is_at_one = rows[np.minimum(after, len(rows) - 1), 0] == times
        before = np.maximum(np.where(is_at_one, after, after - 1), 0)
        width = rows[after, 0] - rows[before, 0]
        share = (times - rows[before, 0]) / np.where(width > 0, width, 1.0)
        share = np.where(width > 0, share, 0.0)[:, np.newaxis]
        is_good = (width <= self._gap) & (rows[before, 0] <= times)
        return rows[before, 1:] * (1.0 - share) + rows[after, 1:] * share, is_good


def _from(rows: Rows, time: float) -> Rows:
    """Return the rows that a later time needs: from the last one that is not after `time`."""
    first = int(np.searchsorted(rows[:, 0], time, side="right")) - 1
    return rows[max(0, first) :]


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
        self.source = self.source or post.source
        sensors = sensor_logger.by_sensor(post, self.source, self._of_watch)
        readings, faults = self.merging.add(sensors)
        self._posts += 1
        self._rate.take(len(readings), arrived)
        self._events += [*map(as_json, faults), *self._missing()]
        for at in range(0, len(readings), MOST_READINGS):
            rows = readings[at : at + MOST_READINGS]
            batch = Readings.model_construct(times=rows[:, 0].tolist(), values=rows[:, 1:].tolist())
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
        self._silences: dict[str, asyncio.Task[None]] = {}

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
        self._silences[name] = asyncio.ensure_future(self._end_when_silent(name, recording))
        return recording

    async def _end_when_silent(self, name: str, recording: PhoneRecording) -> None:
        """End a recording after a silence, but not while its last post is computed."""
        idle = self._limits.streams.idle_seconds
        while (remaining := recording.heard + idle - perf_counter()) > 0 or recording.lock.locked():
            await asyncio.sleep(max(remaining, 1.0))
        self._end(name)

    def _end(self, name: str) -> None:
        recording = self._open.pop(name, None)
        if recording is None:  # another message of it was refused before
            return
        self._places.leave(name)
        self._silences.pop(name).cancel()
        recording.close()


def phone(
    query: sensor_logger.Query, sign: float, serving: Serving, address: str
) -> PhoneRecording:
    """Return a recording that begins, of a client at `address`. Raises RequestError."""
    settings = query.settings(serving.current.description, serving.limits.streams)
    session = LiveSession("sensor_logger", settings, serving, of=address)
    return PhoneRecording(session, sign, query.of_watch, serving.limits)


class Phones:
    """The endpoint of the app's posts over one model."""

    def __init__(self, serving: Serving, budget: Budget) -> None:
        self._serving = serving
        self._budget = budget
        limits = serving.limits
        self._body = replace(limits, body_bytes=limits.streams.message_bytes)
        self._recordings: RecordingRegistry = RecordingRegistry(limits)

    def close(self) -> None:
        """Leave all sessions."""
        self._recordings.close()

    async def __call__(self, request: Request) -> Response:
        """Answer one post."""
        query = sensor_logger.query(
            {key: value for key, value in request.query_params.items() if key != "token"}
        )
        sign = query.sign(request.headers.get("user-agent", ""))
        async with whole_body(request, self._budget, self._body) as body:
            post = sensor_logger.post(body)

        address = address_of(request.scope)

        def begin() -> PhoneRecording:
            return phone(query, sign, self._serving, address)

        recording, events = await self._recordings.take(post.session, post, begin, address)
        answer = {
            "session": post.session,
            "model": self._serving.name,
            "version": recording.session.version.number,
            "events": events,
            "missing": recording.merging.missing,
            "source": recording.source,
        }
        return Response(pydantic_core.to_json(answer), headers={"content-type": "application/json"})
