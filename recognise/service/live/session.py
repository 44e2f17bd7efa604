"""One session: readings in, windows through the served model, events out in the order of time.

The windows of many sessions are computed together by the batcher of the version that is served when
a window is whole.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from core.exported.description import labels_of
from core.ground.errors import UsageError
from recognise.service.limits import RequestError, bad
from recognise.service.live.messages import Readings, Value
from recognise.service.serving import Served, Serving, Windows
from recognise.stream import (
    Event,
    InputFault,
    Label,
    Settings,
    Stream,
    StreamState,
    Window,
    as_json,
    begun,
    resumed,
    text_of,
)

MOVED = "moved"
"""The last event of a session whose service ends: its stream can continue elsewhere."""

Kind = Literal["stream", "sensor_logger"]

Numbers = NDArray[np.float64]
MOST_HELD = 512
"""Readings; about 5 s of a phone's fastest sensor."""


class Rate:
    """A rate that a client must keep: so many a second on average, and `burst` at once."""

    def __init__(self, what: str, per_second: float, burst: int, now: float) -> None:
        self._what = what
        self._per_second = per_second
        self._burst = burst
        self._left = float(burst)
        self._at = now

    def take(self, count: float, now: float) -> None:
        """Take this many. Raises RequestError when that is more than the rate."""
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if count > self._left:
            raise bad(
                f"too fast: expected at most {self._per_second:g} {self._what} a second,"
                f" {self._burst} at once"
            )
        self._left -= count


class ReadingBuffer:
    """Readings of one stream, between two pushes. A fault of their times is pushed at once."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._gap = stream.settings.longest_gap_seconds
        self._early = 0.5 / stream.settings.sampling_hz
        self._last: float | None = None
        self._width = len(stream.settings.readings.channels)
        self._is_named = stream.settings.given is not None
        self._times: list[Value] = []
        self._values: list[Sequence[Value]] = []

    def seconds(self, readings: Readings) -> float:
        """Return the time that these readings take by their own clock.

        A gap that ends a window, and a clock that goes back, take none.
        """
        before = self._last
        total = 0.0
        for time in readings.times:
            if time is not None and before is not None and 0.0 < time - before <= self._gap:
                total += time - before
            before = time
        return total

    def add(self, readings: Readings) -> bool:
        """Hold these readings too; return whether it is time to `take` them.

        Raises RequestError for other values than the first message names.
        """
        rows = readings.rows(self._width, named=self._is_named)
        is_due = not self._are_plain(readings.times)
        self._times += readings.times
        self._values += rows
        last = self._last = readings.times[-1]
        return (
            is_due
            or last is None
            or last + self._early >= self._stream.due
            or len(self._times) >= MOST_HELD
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held."""
        return not self._times

    def take(self) -> tuple[Numbers, Numbers]:
        """Return and forget the held times and values; a missing one is NaN."""
        times = np.array(self._times, np.float64)
        values = np.array(self._values, np.float64)
        self._times = []
        self._values = []
        return times, values

    def _are_plain(self, times: Sequence[Value]) -> bool:
        before = self._last
        for time in times:
            if time is None or before is None or not 0.0 < time - before <= self._gap:
                return False
            before = time
        return True


@dataclass(frozen=True, eq=False)
class _WindowTask:
    """A window that a version computes."""

    window: Window
    arrived: float
    served: Served
    logits: "asyncio.Task[Windows]"


class _End:
    """The last item of a session: what is before it belongs to the session."""


class LiveSession:
    """One session. The task that reads calls `take`, the task that answers calls `events`."""

    def __init__(
        self,
        kind: Kind,
        settings: Settings,
        serving: Serving,
        state: str | None = None,
        of: str = "",
    ) -> None:
        """`state` is that of a session that another service ended, as its client gave it.

        `of` is the client's address.

        Raises RequestError.
        """
        self.settings = settings
        self._kind = kind
        self._of = of
        self._serving = serving
        self._metrics = serving.metrics
        self._limits = serving.limits
        self._version = serving.current
        self._labels = labels_of(self._version.description)
        if state is None:
            self._core = begun(settings, self._labels)
        else:
            self._core = self._resumed(state)
        self._held = ReadingBuffer(self._core.stream)
        self._waiting: asyncio.Queue[InputFault | _WindowTask | _End] = asyncio.Queue(
            serving.limits.streams.waiting
        )
        streams = serving.limits.streams
        self._clock = Rate(
            "seconds of readings", streams.seconds_per_second, streams.burst_seconds, perf_counter()
        )
        self._turn = asyncio.Semaphore(streams.computing)
        self._tasks: set[asyncio.Task[Windows]] = set()
        self._late: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """A future, done when an answer is too late, because the service ends."""
        self._unanswered: list[Window | InputFault] = []
        self._metrics.session(kind, 1)
        for item in self._core.waiting:  # no more than there is room for
            if isinstance(item, Window):
                self._waiting.put_nowait(self._computed(item, perf_counter()))
            else:
                self._waiting.put_nowait(item)

    def close(self) -> None:
        """Leave the windows that wait; it is called once."""
        for task in self._tasks:
            task.cancel()
        self._metrics.session(self._kind, -1)

    @property
    def version(self) -> Served:
        """The version that gave the last label."""
        return self._version

    async def take(self, readings: Readings, arrived: float) -> None:
        """Take the next readings, which came at `arrived` (`perf_counter`).

        Raises RequestError when the client does not take its answers.
        """
        self._clock.take(self._held.seconds(readings), arrived)
        if not self._held.add(readings):
            return
        await self._push(arrived)

    async def leave(self, seconds: float) -> None:
        """Take no more readings: after at most `seconds` the last of `events` is `moved`."""
        asyncio.get_running_loop().call_later(seconds, self._give_up)
        if not self._held.is_empty:
            await self._push(perf_counter())
        await self._put(_End())

    async def events(self) -> Sequence[dict[str, Any]]:
        """Return the events of the next window or fault, as JSON has them.

        Raises RequestError when it was not computed.

        After `leave`, the last one is `moved`, with the state and with what had no answer in time.
        """
        item = await self._waiting.get()
        try:
            if isinstance(item, _End):
                return [self._moved()]
            if isinstance(item, InputFault):
                if not self._unanswered:
                    return [as_json(item)]
                self._unanswered.append(item)
                return ()
            if not self._unanswered:
                await asyncio.wait((item.logits, self._late), return_when=asyncio.FIRST_COMPLETED)
            if self._unanswered or not item.logits.done():
                self._unanswered.append(item.window)
                return ()
            logits = item.logits.result()[0]
            return self._answered(item, self._core.smoothing.take(item.window, logits))
        finally:
            self._waiting.task_done()

    async def answered(self) -> None:
        """Return when `events` has given all that there is."""
        await self._waiting.join()

    async def _push(self, arrived: float) -> None:
        for item in self._core.stream.push_values(*self._held.take()):
            if isinstance(item, InputFault):
                self._metrics.session_fault(item.kind)
                await self._put(item)
            else:
                await self._put(self._computed(item, arrived))

    def _computed(self, window: Window, arrived: float) -> _WindowTask:
        served = self._serving.current
        task = asyncio.get_running_loop().create_task(self._logits(served, window))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_leave)
        return _WindowTask(window, arrived, served, task)

    def _resumed(self, state: str) -> StreamState:
        try:
            return resumed(state, self.settings, self._serving.name, self._labels)
        except UsageError as problem:
            raise bad(str(problem)) from None

    def _moved(self) -> dict[str, Any]:
        now = replace(self._core, waiting=self._unanswered)
        event: dict[str, Any] = {"event": MOVED, "at": now.stream.last}
        state = text_of(now, self._serving.name, self._labels)
        if state is None:
            return event
        return {**event, "resume": state}

    def _give_up(self) -> None:
        if not self._late.done():
            self._late.set_result(None)

    def _answered(self, item: _WindowTask, events: Sequence[Event]) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = []
        if item.served is not self._version:
            self._version = item.served
            answers.append({"event": "version", "version": item.served.number})
        seconds = perf_counter() - item.arrived
        self._metrics.session_window(self._kind, seconds)
        for event in events:
            answer = as_json(event)
            if isinstance(event, Label):
                answer["latency_ms"] = round(1000 * seconds, 3)
                answer["version"] = item.served.number
            answers.append(answer)
        return answers

    async def _logits(self, served: Served, window: Window) -> Windows:
        seconds = self._limits.compute_seconds
        try:
            async with self._turn, asyncio.timeout(seconds):
                return await served.batcher.logits(window.channels[None], self._of)
        except TimeoutError:
            raise RequestError(
                503, f"a window had no answer within {seconds:g} s: come again later"
            ) from None

    async def _put(self, item: "InputFault | _WindowTask | _End") -> None:
        """Put an item when there is room. Reading pauses meanwhile, and with it the client."""
        limits = self._limits.streams
        try:
            self._waiting.put_nowait(item)
        except asyncio.QueueFull:
            try:
                async with asyncio.timeout(limits.room_seconds):
                    await self._waiting.put(item)
            except TimeoutError:
                raise bad(
                    f"too fast: {limits.waiting} events have waited {limits.room_seconds:g} s: send"
                    " slower, and read the answers"
                ) from None


def _leave(task: "asyncio.Task[Windows]") -> None:
    """Take a failed answer without a word: the session has ended."""
    if not task.cancelled():
        task.exception()
