"""The versions that a running service answers with: it follows the pointer, and takes a new version over once warm.

A promoted version is compared on live windows first (`shadow`). A rollback takes over at once.

A request holds the version that it began with, so a take-over drops none. The version before stays open: a client that
names it in its path still gets it.
"""

import asyncio
import logging
import math
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from cluster.control.door import RateLimitedLog
from cluster.errors import ClusterError, reason_of
from cluster.exported.description import Description
from recognise.service.batching import Batcher, Windows
from recognise.service.drift import Drift
from recognise.service.limits import Limits
from recognise.service.loading import Computer
from recognise.service.metrics import ServiceMetrics
from recognise.service.shadow import Shadow
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
        self._shadow: Shadow | None = None
        self._answered_at = -math.inf
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
                self._refuse(number, reason_of(problem))
                continue
            if number > self.current.number and self._is_asked():
                refusal = await self._shadowed(number, computer)
                if refusal is None:  # another one is to be served by now
                    continue
                if refusal:
                    self._refuse(number, refusal)
                    continue
            self._take(number, computer)
            self.metrics.taken_over("taken")
            log.info("version %d is served now", number)

    def _refuse(self, number: int, reason: str) -> None:
        self._refused = number
        self.metrics.taken_over("refused")
        log.error("version %d is refused: %s; version %d stays", number, reason, self.current.number)

    def _is_asked(self) -> bool:
        """Whether there are live windows to compare a version on."""
        return asyncio.get_running_loop().time() - self._answered_at < self.limits.shadow.seconds

    async def _shadowed(self, number: int, computer: Computer) -> str | None:
        """Why the version is not to take over; empty where it is, None where the pointer has moved meanwhile."""
        end = asyncio.get_running_loop().time() + self.limits.shadow.seconds
        shadow = self._shadow = Shadow(computer.logits, self.limits.shadow, self.metrics.shadowed)
        log.info("version %d is in the shadow of version %d", number, self.current.number)
        try:
            while not await shadow.ended(LOOK_SECONDS) and asyncio.get_running_loop().time() < end:
                with suppress(ClusterError, OSError):  # `follow` says what is wrong with it
                    if await asyncio.to_thread(self._versions.current) != number:
                        return None
        finally:
            self._shadow = None
            shadow.close()
        found = shadow.found
        log.info(
            "version %d in the shadow: of %d windows %d got the served label; %d were left out",
            number, found.compared, found.agreed, found.left,
        )  # fmt: skip
        return shadow.refusal()

    def _computed(self, number: int, windows: Windows, logits: Windows) -> None:
        self.metrics.batch(len(windows))
        if number != self.current.number:
            return
        self._answered_at = asyncio.get_running_loop().time()
        if self._shadow is not None:
            self._shadow.offer(windows, logits)

    async def _opened(self, number: int) -> Computer:
        limits = self.limits
        return await asyncio.to_thread(Computer, self._versions.path(number), limits.threads, limits.batch_windows)

    def _take(self, number: int, computer: Computer) -> None:
        compute = self._drift.watched(number, computer.description, computer.logits)
        batcher = Batcher(compute, self._pool, self.limits, partial(self._computed, number))
        following = Served(number, computer.description, batcher)
        before = self._current
        self._open = {one.number: one for one in (before, following) if one is not None}
        self._drift.keep(self._open)
        self._current, self._refused = following, None
        self.metrics.version(number)
