"""One session: readings in, windows through the served model, events out in the order of time.

The windows of many sessions are computed together by the batcher of the version that is served when a window is whole.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal

from cluster.exported.description import labels_of
from recognise.service.batching import Windows
from recognise.service.limits import Limits
from recognise.service.live.held import Held
from recognise.service.live.messages import Readings
from recognise.service.metrics import ServiceMetrics
from recognise.service.refusals import RefusedError, bad
from recognise.service.serving import Served, Serving
from recognise.stream import Event, Fault, Label, Settings, Smoothing, Stream, Window, as_json

Kind = Literal["stream", "sensor_logger", "mqtt"]


@dataclass(frozen=True, eq=False)
class _Computed:
    """A window that a version computes."""

    window: Window
    arrived: float
    served: Served
    logits: "asyncio.Task[Windows]"


class Session:
    """See the module. `take` and `events` belong to two tasks: the one that reads and the one that answers."""

    def __init__(
        self, kind: Kind, settings: Settings, serving: Serving, metrics: ServiceMetrics, limits: Limits
    ) -> None:
        self.settings = settings
        self._kind, self._serving, self._metrics, self._limits = kind, serving, metrics, limits
        self._version = serving.current
        self._stream = Stream(settings)
        self._held = Held(self._stream)
        self._smoothing = Smoothing(settings, labels_of(self._version.description))
        self._waiting: asyncio.Queue[Fault | _Computed] = asyncio.Queue(limits.streams.waiting)
        self._tasks: set[asyncio.Task[Windows]] = set()
        metrics.session(kind, 1)

    def close(self) -> None:
        """Leave the windows that wait. Once."""
        for task in self._tasks:
            task.cancel()
        self._metrics.session(self._kind, -1)

    @property
    def version(self) -> Served:
        """The version that gave the last label."""
        return self._version

    async def take(self, given: Readings, arrived: float) -> None:
        """The next readings, which came at `arrived` (`perf_counter`).

        Raises RefusedError when the client does not take its answers.
        """
        if not self._held.add(given):
            return
        for item in self._stream.push(*self._held.take()):
            if isinstance(item, Fault):
                self._metrics.session_fault(item.kind)
                await self._put(item)
                continue
            served = self._serving.current
            task = asyncio.get_running_loop().create_task(self._logits(served, item))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(_leave)
            await self._put(_Computed(item, arrived, served, task))

    async def events(self) -> Sequence[dict[str, Any]]:
        """The events of the next window or fault, as JSON has them. Raises RefusedError when it was not computed."""
        item = await self._waiting.get()
        try:
            if isinstance(item, Fault):
                return [as_json(item)]
            logits = await item.logits
            return self._answered(item, self._smoothing.take(item.window, logits[0]))
        finally:
            self._waiting.task_done()

    async def answered(self) -> None:
        """Return when `events` has given all that there is."""
        await self._waiting.join()

    def _answered(self, item: _Computed, events: Sequence[Event]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        if item.served is not self._version:
            self._version = item.served
            found.append({"event": "version", "version": item.served.number})
        seconds = perf_counter() - item.arrived
        self._metrics.session_window(self._kind, seconds)
        for event in events:
            more = {"latency_ms": round(1000 * seconds, 3), "version": item.served.number}
            found.append({**as_json(event), **more} if isinstance(event, Label) else as_json(event))
        return found

    async def _logits(self, served: Served, window: Window) -> Windows:
        seconds = self._limits.compute_seconds
        try:
            async with asyncio.timeout(seconds):
                return await served.batcher.logits(window.channels[None])
        except TimeoutError:
            raise RefusedError(503, f"a window had no answer within {seconds:g} s: come again later") from None

    async def _put(self, item: Fault | _Computed) -> None:
        """Wait for room. Reading pauses meanwhile, and with it the client."""
        limits = self._limits.streams
        try:
            self._waiting.put_nowait(item)
        except asyncio.QueueFull:
            try:
                async with asyncio.timeout(limits.room_seconds):
                    await self._waiting.put(item)
            except TimeoutError:
                raise bad(
                    f"too fast: {limits.waiting} events have waited {limits.room_seconds:g} s: send slower, and read "
                    "the answers"
                ) from None


def _leave(task: "asyncio.Task[Windows]") -> None:
    """A session that has ended does not ask why there is no answer."""
    if not task.cancelled():
        task.exception()
