"""The versions that a running service answers with: each new one takes over once it is warm.

Each version computes in a process of its own. One that ends is started again; where that happens
twice within a minute of a promotion, the version before is served again.

A request holds the version that it began with, so a take-over drops none. The version before stays
open: a client that names it in its path still gets it.
"""

import asyncio
import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from core.control.door import RateLimitedLog
from core.exported.description import Description
from core.ground.errors import ClusterError, reason_of
from recognise.service.limits import Limits, RequestError
from recognise.service.loading import Computer
from recognise.service.metrics import DriftFigures, Recent, ServiceMetrics
from recognise.service.versions import Versions
from recognise.service.worker.process import Nursery

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


log = logging.getLogger(__name__)

LOOK_SECONDS = 0.25
"""The interval at which the pointer is read."""
MEND_SECONDS = 1.0
"""Time between two processes of one version."""
MOST_ENDS = 2
"""Ends of a promoted version's process, while it is watched, after which it is taken back."""


@dataclass(frozen=True, eq=False)
class Served:
    """One open version."""

    number: int
    description: Description
    batcher: Batcher
    computer: Computer
    recent: Recent


class Serving:
    """The open versions of one model, within one event loop."""

    def __init__(
        self,
        name: str,
        versions: Versions,
        limits: Limits,
        metrics: ServiceMetrics,
        nursery: Nursery,
    ) -> None:
        self.name = name
        self.metrics = metrics
        self.limits = limits
        self._versions = versions
        self._nursery = nursery
        self._open: dict[int, Served] = {}
        self._current: Served | None = None
        self._refused: int | None = None
        self._watched_until = -math.inf
        self._ends = 0
        """Count of ends of the current version's process while it was watched."""
        self._leaving: set[asyncio.Task[None]] = set()
        self._log = RateLimitedLog(log)
        metrics.drift(self._drift)
        metrics.waiting(
            lambda: sum(served.batcher.waiting_windows for served in self._open.values())
        )

    @property
    def current(self) -> Served:
        """The version that answers. There is one from the end of `begin` on."""
        assert self._current is not None
        return self._current

    def version(self, text: str | None) -> Served | None:
        """Return the open version that a path names; the current one for None."""
        if text is None:
            return self.current
        return next((served for served in self._open.values() if str(served.number) == text), None)

    @property
    def numbers(self) -> list[int]:
        """The open versions."""
        return sorted(self._open)

    async def begin(self) -> None:
        """Open the current version.

        Raises ClusterError when there is none, or when it cannot be opened.
        """
        number = await asyncio.to_thread(self._versions.current)
        if number is None:
            raise ClusterError(
                "no version of this model was promoted yet: add --model EXPORT or --run RUN"
            )
        self._take(number, await self._opened(number))

    def close(self) -> None:
        """End the processes of all versions: the service ends as it was asked to."""
        for task in self._leaving:
            task.cancel()
        for served in self._open.values():
            served.computer.close()

    async def watch(self) -> None:
        """Start each process again that ended, until this is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for served in list(self._open.values()):
                if served.computer.lost and served.number != self._refused:
                    await self._mend(served)

    async def _mend(self, served: Served) -> None:
        """Start another process for a version; take back one that ends again and again."""
        number = served.number
        why = served.computer.lost
        if served is self.current and asyncio.get_running_loop().time() < self._watched_until:
            self._ends += 1
            if self._ends >= MOST_ENDS and await self._take_back(number, why):
                return
        self._log.say(f"the process of version {number} has ended ({why}): started again")
        try:
            await asyncio.to_thread(served.computer.reopen)
        except (ClusterError, OSError, RuntimeError) as problem:
            self._log.say(f"version {number}: {reason_of(problem)}")
        if served not in self._open.values():  # it was replaced meanwhile
            served.computer.close()
        await asyncio.sleep(MEND_SECONDS)

    async def _take_back(self, number: int, why: str) -> bool:
        """Move the pointer to the version before this one, which `follow` then takes over.

        Returns whether there is one.
        """
        twice = f"its process ended twice within {self.limits.watch_seconds:g} s of its promotion"
        try:
            before = await asyncio.to_thread(self._versions.take_back, number)
        except (ClusterError, OSError) as problem:
            self._log.say(f"version {number}: {twice} ({why}), and stays: {reason_of(problem)}")
            return False
        if before is None:
            return False
        self._refused = number
        self.metrics.taken_over("taken_back")
        log.error(
            "version %d is taken back: %s (%s); version %d is served again",
            number,
            twice,
            why,
            before,
        )
        return True

    async def follow(self) -> None:
        """Take over each version that becomes the current one, until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                number = await asyncio.to_thread(self._versions.current)
            except (ClusterError, OSError) as problem:
                self._log.say(f"{problem}; version {self.current.number} stays")
                continue
            if number is None or number in (self.current.number, self._refused):
                continue
            try:
                computer = await self._opened(number)
            except (
                ClusterError,
                OSError,
                MemoryError,
                RuntimeError,
            ) as problem:  # the watch outlives a bad version
                self._refuse(number, reason_of(problem))
                continue
            is_promoted = number > self.current.number
            self._take(number, computer)
            self._ends = 0
            self._watched_until = -math.inf
            if is_promoted:  # the others were served before
                now = asyncio.get_running_loop().time()
                self._watched_until = now + self.limits.watch_seconds
            self.metrics.taken_over("taken")
            log.info("version %d is served now", number)

    def _refuse(self, number: int, reason: str) -> None:
        self._refused = number
        self.metrics.taken_over("refused")
        log.error(
            "version %d is refused: %s; version %d stays", number, reason, self.current.number
        )

    async def _opened(self, number: int) -> Computer:
        path = self._versions.path(number)
        return await asyncio.to_thread(Computer, path, self.limits, self._nursery)

    def _take(self, number: int, computer: Computer) -> None:
        recent = Recent(computer.description)
        compute = recent.watched(computer.logits)
        batcher = Batcher(compute, computer.pool, self.limits, self.metrics.batch)
        following = Served(number, computer.description, batcher, computer, recent)
        before = self._current
        open_versions = {number: following}
        if before is not None and before.number < number:
            open_versions[before.number] = before
        for served in self._open.values():
            if served not in open_versions.values() and served.computer is not computer:
                self._leave(served)
        self._open = dict(sorted(open_versions.items()))
        self._current = following
        self._refused = None
        self.metrics.version(number)

    def _drift(self) -> Mapping[int, DriftFigures | None]:
        """Return the figures of each open version. The thread of /metrics asks."""
        return {number: served.recent.figures() for number, served in self._open.items()}

    def _leave(self, served: Served) -> None:
        """End a version's process, once the requests that began with it have their answers."""

        async def leave() -> None:
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.limits.compute_seconds):
                        await served.batcher.idle()
            finally:
                served.computer.close()

        task = asyncio.get_running_loop().create_task(leave())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
