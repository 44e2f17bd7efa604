"""Requests of one version that wait are computed together, in a small pool of threads.

The addresses of clients take turns: what one sends at once makes no other wait longer than a batch.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recognise.service.limits import Limits, RequestError
from recognise.service.places import SHARE

IDLE_SECONDS = 0.05
"""How often it is looked at whether a version that goes has answered all."""

Windows = NDArray[np.float32]
Compute = Callable[[Windows], Windows]
"""Logits (n, classes) of windows (n, samples, channels); runs in a thread of the pool."""

Computed = Callable[[int], None]
"""Gets the number of windows of a batch."""


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
        self._running = 0
        self._timer: asyncio.TimerHandle | None = None
        self._batches: set[asyncio.Task[None]] = set()

    @property
    def waiting_windows(self) -> int:
        """The number of windows that no thread computes yet."""
        # The thread of /metrics reads it too.
        queues = tuple(self._waiting.values())
        return sum(len(one.windows) for queue in queues for one in tuple(queue))

    async def idle(self) -> None:
        """Return when no request waits and no batch is computed."""
        while self._waiting or self._running:
            await asyncio.sleep(IDLE_SECONDS)

    async def logits(self, windows: Windows, of: str = "") -> Windows:
        """Return the logits of `windows` from the address `of`.

        Raises RequestError when too many windows wait, and more than its share from this address.
        """
        most = self._limits.waiting_windows
        own = sum(len(one.windows) for one in self._waiting.get(of, ())) + len(windows)
        if self.waiting_windows + len(windows) > most and own > most // SHARE:
            raise RequestError(
                503,
                f"more than {most} windows wait already: ask again later",
            )
        loop = asyncio.get_running_loop()
        waiting = _Waiting(windows, loop.time(), loop.create_future())
        self._waiting.setdefault(of, deque()).append(waiting)
        self._begin()
        return await waiting.answer

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
            queue.popleft()
            del self._waiting[of]
            if queue:
                self._waiting[of] = queue  # behind the others
        return batch

    async def _run(self, batch: list[_Waiting]) -> None:
        try:
            if len(batch) == 1:
                windows = batch[0].windows
            else:
                windows = np.concatenate([one.windows for one in batch])
            logits = await asyncio.get_running_loop().run_in_executor(
                self._pool, self._compute, windows
            )
        except Exception as problem:
            for one in batch:
                if not one.answer.done():
                    one.answer.set_exception(problem)
        else:
            self._computed(len(windows))
            start = 0
            for one in batch:
                end = start + len(one.windows)
                if not one.answer.done():
                    one.answer.set_result(logits[start:end])
                start = end
        finally:
            self._running -= 1
            self._begin()
