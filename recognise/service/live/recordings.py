"""Sessions of clients that hold no connection: each has a name, and is over after a silence.

A post or a message brings readings, and takes the events since the one before.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, Generic, TypeVar

from recognise.service.limits import Limits, RequestError
from recognise.service.live.messages import Readings
from recognise.service.live.session import LiveSession, Rate

MOST_EVENTS = 1024
"""One recording keeps so many events until its client takes them; the oldest go."""

Given = TypeVar("Given")


class Recording(ABC, Generic[Given]):
    """One recording: its session, and the events that its client has not taken."""

    def __init__(self, session: LiveSession, limits: Limits) -> None:
        self.lock = asyncio.Lock()
        self.heard = perf_counter()
        self.session = session
        streams = limits.streams
        self._rate = Rate(
            "readings", streams.readings_per_second, streams.burst_readings, self.heard
        )
        self._events: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        self._hearing = asyncio.ensure_future(self._hear())

    @abstractmethod
    def readings(self, given: Given) -> tuple[int, Iterable[Readings], list[dict[str, Any]]]:
        """Return how many readings these are, the readings in parts, and events of their own.

        Raises RequestError.
        """

    async def take(self, given: Given) -> list[dict[str, Any]]:
        """Return the events up to these readings.

        Raises RequestError; the recording then begins again.
        """
        arrived = self.heard
        count, parts, events = self.readings(given)
        self._rate.take(count, arrived)
        self._events += events
        for part in parts:
            await self.session.take(part, arrived)
        answered = asyncio.ensure_future(self.session.answered())
        try:
            await asyncio.wait({answered, self._hearing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answered.cancel()
        if self._hearing.done():
            self._hearing.result()
        found = list(self._events)
        self._events.clear()
        return found

    def close(self) -> None:
        """Leave it. Once."""
        self._hearing.cancel()
        self.session.close()

    async def _hear(self) -> None:
        while True:
            self._events += await self.session.events()


Kind = TypeVar("Kind", bound=Recording[Any])


class RecordingRegistry(Generic[Kind]):
    """The recordings of one kind of client, by name."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[str, Kind] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def close(self) -> None:
        """Leave all of them."""
        for name in list(self._open):
            self._end(name)

    async def take(
        self, name: str, given: Any, begin: Callable[[], Kind]
    ) -> tuple[Kind, list[dict[str, Any]]]:
        """Return the recording of that name, begun where there is none, and its events.

        Raises RequestError.
        """
        found = self._open.get(name) or self._begin(name, begin)
        async with found.lock:
            found.heard = perf_counter()
            try:
                return found, await found.take(given)
            except RequestError:
                self._end(name)
                raise

    def _begin(self, name: str, begin: Callable[[], Kind]) -> Kind:
        most = self._limits.streams.sessions
        if len(self._open) >= most:
            raise RequestError(503, f"{most} sessions are open already: come again later")
        made = self._open[name] = begin()
        self._look_after(name, self._limits.streams.idle_seconds)
        return made

    def _look_after(self, name: str, seconds: float) -> None:
        self._timers[name] = asyncio.get_running_loop().call_later(seconds, self._look, name)

    def _look(self, name: str) -> None:
        found = self._open[name]
        idle = self._limits.streams.idle_seconds
        left = found.heard + idle - perf_counter()
        if left <= 0 and not found.lock.locked():
            self._end(name)
        else:
            self._look_after(name, max(left, 1.0))

    def _end(self, name: str) -> None:
        found = self._open.pop(name, None)
        if found is None:  # another message of it was refused before
            return
        self._timers.pop(name).cancel()
        found.close()
