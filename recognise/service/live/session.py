"""One session: readings in, windows through the served model, events out in the order of time.

The windows of many sessions are computed together by the batcher of the version that is served when a window is whole.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Literal

from cluster.errors import UsageError
from cluster.exported.description import labels_of
from recognise.service.batching import Windows
from recognise.service.limits import Limits
from recognise.service.live.held import Held
from recognise.service.live.messages import Readings
from recognise.service.metrics import ServiceMetrics
from recognise.service.refusals import RefusedError, bad
from recognise.service.serving import Served, Serving
from recognise.stream import Event, Fault, Label, Resumed, Settings, Window, as_json, begun, resumed, text_of

MOVED = "moved"
"""The last event of a session whose service ends: its stream can continue elsewhere."""

Kind = Literal["stream", "sensor_logger", "mqtt"]


@dataclass(frozen=True, eq=False)
class _Computed:
    """A window that a version computes."""

    window: Window
    arrived: float
    served: Served
    logits: "asyncio.Task[Windows]"


class _End:
    """The last item: what is before it belongs to this session."""


class Session:
    """See the module. `take` and `events` belong to two tasks: the one that reads and the one that answers."""

    def __init__(
        self,
        kind: Kind,
        settings: Settings,
        serving: Serving,
        metrics: ServiceMetrics,
        limits: Limits,
        state: str | None = None,
    ) -> None:
        """`state`: of a session that another service ended, as its client gave it. Raises RefusedError."""
        self.settings = settings
        self._kind, self._serving, self._metrics, self._limits = kind, serving, metrics, limits
        self._version = serving.current
        self._labels = labels_of(self._version.description)
        self._core = begun(settings, self._labels) if state is None else self._resumed(state)
        self._held = Held(self._core.stream)
        self._waiting: asyncio.Queue[Fault | _Computed | _End] = asyncio.Queue(limits.streams.waiting)
        self._tasks: set[asyncio.Task[Windows]] = set()
        self._late: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when an answer is too late, because the service ends."""
        self._unanswered: list[Window | Fault] = []
        metrics.session(kind, 1)
        for item in self._core.waiting:  # no more than there is room for
            self._waiting.put_nowait(item if isinstance(item, Fault) else self._computed(item, perf_counter()))

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
        await self._push(arrived)

    async def leave(self, seconds: float) -> None:
        """No readings follow: after the events of these, and at most `seconds`, `events` gives `moved`."""
        asyncio.get_running_loop().call_later(seconds, self._give_up)
        if not self._held.is_empty:
            await self._push(perf_counter())
        await self._put(_End())

    async def events(self) -> Sequence[dict[str, Any]]:
        """The events of the next window or fault, as JSON has them. Raises RefusedError when it was not computed.

        After `leave`, the last one is `moved`, with the state and with what had no answer in time.
        """
        item = await self._waiting.get()
        try:
            if isinstance(item, _End):
                return [self._moved()]
            if isinstance(item, _Computed) and not self._unanswered:
                await asyncio.wait((item.logits, self._late), return_when=asyncio.FIRST_COMPLETED)
            if self._unanswered or (isinstance(item, _Computed) and not item.logits.done()):
                self._unanswered.append(item if isinstance(item, Fault) else item.window)
                return ()
            if isinstance(item, Fault):
                return [as_json(item)]
            return self._answered(item, self._core.smoothing.take(item.window, item.logits.result()[0]))
        finally:
            self._waiting.task_done()

    async def answered(self) -> None:
        """Return when `events` has given all that there is."""
        await self._waiting.join()

    async def _push(self, arrived: float) -> None:
        for item in self._core.stream.push(*self._held.take()):
            if isinstance(item, Fault):
                self._metrics.session_fault(item.kind)
                await self._put(item)
            else:
                await self._put(self._computed(item, arrived))

    def _computed(self, window: Window, arrived: float) -> _Computed:
        served = self._serving.current
        task = asyncio.get_running_loop().create_task(self._logits(served, window))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_leave)
        return _Computed(window, arrived, served, task)

    def _resumed(self, state: str) -> Resumed:
        try:
            return resumed(state, self.settings, self._serving.name, self._labels)
        except UsageError as problem:
            raise bad(str(problem)) from None

    def _moved(self) -> dict[str, Any]:
        now = replace(self._core, waiting=self._unanswered)
        found: dict[str, Any] = {"event": MOVED, "at": now.stream.last}
        state = text_of(now, self._serving.name, self._labels)
        return found if state is None else {**found, "resume": state}

    def _give_up(self) -> None:
        if not self._late.done():
            self._late.set_result(None)

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

    async def _put(self, item: "Fault | _Computed | _End") -> None:
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
