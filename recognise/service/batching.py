"""Requests of one version that wait are computed together, in a small pool of threads.

The addresses of clients take turns: what one sends at once makes no other wait longer than a batch.
What waits is bounded over all addresses: where it is too much, the one with the most gives way.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from recognise.service.limits import Limits, RequestError

IDLE_SECONDS = 0.05
"""The interval of looks whether a version that goes has answered all."""

Windows = NDArray[np.float32]
Compute = Callable[[Windows], Windows]
"""Logits (n, classes) of windows (n, samples, channels); runs in a thread of the pool."""

Computed = Callable[[int], None]
"""A callback that gets the number of windows of a batch."""


@dataclass(frozen=True, eq=False)
class _Waiting:
    windows: Windows
    since: float
    answer: "asyncio.Future[Windows]"


class Batcher:
    """A collector of requests, within one event loop.

    A batch begins as soon as a thread is free and either `batch_windows` wait or the oldest request
    has waited `batch_seconds`. A larger request is a batch by itself. It leaves out requests whose
    client has gone, or whose time is over.
    """

    def __init__(
        self,
        compute: Compute,
        pool: Executor,
        limits: Limits,
        computed: Computed = lambda windows: None,
    ) -> None:
        """`computed` hears of each batch."""
        self._compute = compute
        self._pool = pool
        self._limits = limits
        self._computed = computed
        self._waiting: dict[str, deque[_Waiting]] = {}
        """The queues by address, none empty; the first one has the next turn."""
        self._counts = Counter[str]()
        """The waiting windows by address."""
        self._running = 0
        self._timer: asyncio.TimerHandle | None = None
        self._batches: set[asyncio.Task[None]] = set()

    @property
    def waiting_windows(self) -> int:
        """The number of windows that no thread computes yet."""
        return sum(tuple(self._counts.values()))  # the thread of /metrics reads it too

    async def idle(self) -> None:
        """Return when no request waits and no batch is computed."""
        while self._waiting or self._running:
            await asyncio.sleep(IDLE_SECONDS)

    async def logits(self, windows: Windows, of: str = "") -> Windows:
        """Return the logits of `windows` from the address `of`.

        Raises RequestError when too many windows wait, unless another address has more of them.
        """
        self._make_room(len(windows), of)
        loop = asyncio.get_running_loop()
        waiting = _Waiting(windows, loop.time(), loop.create_future())
        self._waiting.setdefault(of, deque()).append(waiting)
        self._counts[of] += len(windows)
        self._begin()
        return await waiting.answer

    def _make_room(self, count: int, of: str) -> None:
        """Refuse the newest requests of the address with the most, or raise RequestError."""
        most = self._limits.waiting_windows
        full = RequestError(503, f"more than {most} windows wait already: ask again later")
        while self.waiting_windows + count > most:
            busiest, windows = max(self._counts.items(), key=itemgetter(1), default=(of, 0))
            if windows <= self._counts[of] + count:
                raise full
            request = self._removed(busiest, -1)
            if not request.answer.done():
                request.answer.set_exception(full)

    def _removed(self, of: str, place: int) -> _Waiting:
        """Take a request of this address out of its queue, which is then behind the others."""
        queue = self._waiting.pop(of)
        request = queue[place]
        del queue[place]
        self._counts[of] -= len(request.windows)
        if queue:
            self._waiting[of] = queue
        else:
            del self._counts[of]
        return request

    def _begin(self) -> None:
        """Start the batches that are due, and look again when the next one is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        while self._waiting and self._running < self._limits.threads:
            oldest = min(queue[0].since for queue in self._waiting.values())
            due = oldest + self._limits.batch_seconds
            if self.waiting_windows < self._limits.batch_windows and loop.time() < due:
                self._timer = loop.call_at(due, self._begin)
                return
            batch = self._taken()
            if batch:
                self._running += 1
                task = loop.create_task(self._run(batch))
                self._batches.add(task)
                task.add_done_callback(self._batches.discard)

    def _taken(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        count = 0
        while self._waiting:
            of, queue = next(iter(self._waiting.items()))
            following = queue[0]
            if not following.answer.done():  # else the client has gone, or its time is over
                if batch and count + len(following.windows) > self._limits.batch_windows:
                    break
                batch.append(following)
                count += len(following.windows)
            self._removed(of, 0)
        return batch

    async def _run(self, batch: list[_Waiting]) -> None:
        try:
            if len(batch) == 1:
                windows = batch[0].windows
            else:
                windows = np.concatenate([request.windows for request in batch])
            logits = await asyncio.get_running_loop().run_in_executor(
                self._pool, self._compute, windows
            )
        except Exception as problem:
            for request in batch:
                if not request.answer.done():
                    request.answer.set_exception(problem)
        else:
            self._computed(len(windows))
            start = 0
            for request in batch:
                end = start + len(request.windows)
                if not request.answer.done():
                    request.answer.set_result(logits[start:end])
                start = end
        finally:
            self._running -= 1
            self._begin()
