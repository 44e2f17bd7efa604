"""A promoted version in the shadow: it computes what the served version has just answered.

No client gets its answers.

The shadow has a thread of its own and takes one batch at a time. It leaves out the batches that
come meanwhile, so live windows never wait for it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from recognise.service.batching import Compute, Windows
from recognise.service.limits import ShadowLimits

log = logging.getLogger(__name__)

Counted = Callable[[str, int], None]
"""Gets a result of the catalogue, and of how many windows it is.

agreed, differed: both versions named the same class, or not; failed: the shadow had no finite
answer where the served version had one; left: the windows came while the shadow computed others.
"""


class Shadow:
    """One version that is compared, within one event loop; its owner must `close` it."""

    def __init__(self, compute: Compute, limits: ShadowLimits, counted: Counted) -> None:
        self._compute = compute
        self._limits = limits
        self._counted = counted
        self._thread = ThreadPoolExecutor(1, "shadow")
        self._running: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._problem = ""
        self.found: Counter[str] = Counter()
        """Windows by their result."""

    @property
    def compared(self) -> int:
        """The number of windows that the shadow computed."""
        return self.found.total() - self.found["left"]

    def offer(self, windows: Windows, logits: Windows) -> None:
        """Compare windows (n, samples, channels) that got these logits (n, classes).

        Returns at once.
        """
        most = self._limits.batch_windows
        if self._ended.is_set():
            return
        if self._running is not None:
            self._count("left", len(windows))
            return
        if len(windows) > most:
            self._count("left", len(windows) - most)
        task = asyncio.get_running_loop().create_task(
            self._compare(windows[:most].copy(), logits[:most].copy())
        )
        self._running = task

    async def ended(self, seconds: float) -> bool:
        """Wait so long at most; whether enough windows were compared, or it failed."""
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True

    def refusal(self) -> str:
        """Return why this version shall not be served, or an empty text."""
        failed = self.found["failed"]
        agreed = self.found["agreed"]
        least = self._limits.least_agreement
        if self._problem:
            return f"in the shadow it failed: {self._problem}"
        if failed:
            return f"in the shadow {failed} of {self.compared} windows had no finite answer"
        if self.compared and agreed / self.compared < least:
            return (
                f"in the shadow {agreed} of {self.compared} windows got the served label,"
                f" expected {least:g}"
            )
        return ""

    def close(self) -> None:
        """Leave what it computes. A thread in the middle of a batch ends with it."""
        self._ended.set()
        if self._running is not None:
            self._running.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _compare(self, windows: Windows, logits: Windows) -> None:
        seconds = self._limits.compute_seconds
        try:
            async with asyncio.timeout(seconds):
                own = await asyncio.get_running_loop().run_in_executor(
                    self._thread, self._compute, windows
                )
        except TimeoutError:
            self._fail(f"{len(windows)} windows had no answer within {seconds:g} s")
        except (
            Exception
        ) as problem:  # whatever the runtime raises: the served version goes unharmed
            log.debug("in the shadow", exc_info=True)
            self._fail(f"{type(problem).__name__}: {problem!s:.200}")
        else:
            self._judge(own, logits)
        finally:
            self._running = None

    def _judge(self, own: Windows, logits: Windows) -> None:
        answered = np.isfinite(logits).all(
            axis=1
        )  # a window without a finite answer says nothing of the shadow
        finite = np.isfinite(own).all(axis=1)
        same = own.argmax(axis=1) == logits.argmax(axis=1)
        self._count("failed", int(np.count_nonzero(answered & ~finite)))
        self._count("agreed", int(np.count_nonzero(answered & finite & same)))
        self._count("differed", int(np.count_nonzero(answered & finite & ~same)))
        if self.found["failed"] or self.compared >= self._limits.windows:
            self._ended.set()

    def _fail(self, problem: str) -> None:
        self._problem = problem
        self._ended.set()

    def _count(self, result: str, windows: int) -> None:
        self.found[result] += windows
        self._counted(result, windows)
