"""The versions that a running service answers with: it follows the pointer, and takes a new version over once warm.

A request holds the version that it began with, so a take-over drops none. The version before stays open: a client that
names it in its path still gets it.
"""

import asyncio
import logging
from concurrent.futures import Executor
from dataclasses import dataclass

from cluster.control.door import RateLimitedLog
from cluster.errors import ClusterError, reason_of
from cluster.exported.description import Description
from recognise.service.batching import Batcher
from recognise.service.drift import Drift
from recognise.service.limits import Limits
from recognise.service.loading import Computer
from recognise.service.metrics import ServiceMetrics
from recognise.service.versions import Versions

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.25
"""How often the pointer is read."""


@dataclass(frozen=True, eq=False)
class Served:
    """One open version."""

    number: int
    description: Description
    batcher: Batcher


class Serving:
    """The open versions of one model, within one event loop."""

    def __init__(self, name: str, versions: Versions, pool: Executor, limits: Limits, metrics: ServiceMetrics) -> None:
        self.name, self.metrics, self.limits = name, metrics, limits
        self._versions, self._pool = versions, pool
        self._open: dict[int, Served] = {}
        self._current: Served | None = None
        self._refused: int | None = None
        self._log = RateLimitedLog(log)
        self._drift = Drift()
        metrics.drift(self._drift.figures)
        metrics.waiting(lambda: sum(one.batcher.waiting_windows for one in self._open.values()))

    @property
    def current(self) -> Served:
        """The version that answers. There is one from the end of `begin` on."""
        assert self._current is not None
        return self._current

    def version(self, text: str | None) -> Served | None:
        """The open version that a path names; the current one for None."""
        if text is None:
            return self.current
        return next((one for one in self._open.values() if str(one.number) == text), None)

    @property
    def numbers(self) -> list[int]:
        """The open versions."""
        return sorted(self._open)

    async def begin(self) -> None:
        """Open the current version. Raises ClusterError when there is none, or when it cannot be opened."""
        number = await asyncio.to_thread(self._versions.current)
        if number is None:
            raise ClusterError("no version of this model was promoted yet: add --model EXPORT or --run RUN")
        self._take(number, await self._opened(number))

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
            except (ClusterError, OSError, MemoryError, RuntimeError) as problem:  # the watch outlives a bad version
                self._refused = number
                self.metrics.taken_over("refused")
                log.error(
                    "version %d is refused: %s; version %d stays", number, reason_of(problem), self.current.number
                )
                continue
            self._take(number, computer)
            self.metrics.taken_over("taken")
            log.info("version %d is served now", number)

    async def _opened(self, number: int) -> Computer:
        limits = self.limits
        return await asyncio.to_thread(Computer, self._versions.path(number), limits.threads, limits.batch_windows)

    def _take(self, number: int, computer: Computer) -> None:
        compute = self._drift.watched(number, computer.description, computer.logits)
        batcher = Batcher(compute, self._pool, self.limits, self.metrics.batch)
        following = Served(number, computer.description, batcher)
        before = self._current
        self._open = {one.number: one for one in (before, following) if one is not None}
        self._drift.keep(self._open)
        self._current, self._refused = following, None
        self.metrics.version(number)
