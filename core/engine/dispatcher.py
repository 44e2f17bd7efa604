"""Runs items on the live workers: the thin shell around `Membership`.

The caller's thread takes events, hands them to the membership and carries out its instructions. A
thread for each worker makes the calls, a prober finds workers that return, and the watchdog process
cuts off workers that block us. Every wait has a deadline.
"""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from core.engine.changes import (
    Changes,
    Drain,
    Drains,
    holder_lost,
    name_of,
    raise_if_cut_off,
    raise_if_server_lost,
)
from core.engine.chaos import Strike
from core.engine.drive import ItemDrive
from core.engine.membership import Membership, TimeLimits
from core.engine.runtime import Runtime, split
from core.engine.threads import Prober, Saboteur, WorkerThread
from core.engine.workers import (
    Abandon,
    Add,
    Answered,
    Deliver,
    Dispatch,
    DrainAsked,
    Drop,
    Event,
    Fence,
    GiveUp,
    InOrder,
    Instruction,
    Item,
    ItemSource,
    Joined,
    Outcome,
    Probed,
    ProbeSuspect,
    ReleaseWorker,
    Silent,
)
from core.ground.errors import ClusterError

log = logging.getLogger(__name__)

LINGER_SECONDS = 15.0
LANES_SECONDS = 1.0
"""Wait for the calls of all threads together, when the dispatcher closes."""
PROBE_SECONDS = 2.0
LOOK_SECONDS = 0.5

STANDSTILL_SECONDS = 1.0
"""A turn that takes this much longer than its wait: the coordinator stood still, and all deadlines
move."""


class NoWorkers(ClusterError):
    """No worker answered in time."""


class Dispatcher:
    """Schedules items on the live workers of one cluster. Use as a context manager."""

    def __init__(
        self,
        runtime: Runtime,
        timing: TimeLimits | None = None,
        patience_seconds: float = 120.0,
        chaos: Saboteur | None = None,
    ) -> None:
        """Take the runtime; functions of items should be traced (`runtime.trace`) before any run.

        A run without any worker raises NoWorkers after `patience_seconds`. `chaos` injects faults.
        """
        self._runtime = runtime
        self._chaos = chaos
        self._addresses = {
            task: split(address) for task, address in enumerate(runtime.peers.workers)
        }
        self.membership = Membership(range(len(self._addresses)), timing)
        self._patience_seconds = patience_seconds
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._threads: dict[int, WorkerThread] = {}
        self._guardian = runtime.guardian
        self._changes = Changes(runtime, self.membership, self._guardian)
        self._prober = Prober()
        self._closed = threading.Event()
        self._looking: set[int] = set()
        self._left: set[int] = set()
        self._drains = Drains()
        self._holders: frozenset[int] = frozenset()
        self._doubts: list[str] = []
        """Why workers left since the servers were asked the last time."""
        self._drive: ItemDrive | None = None
        self._outcomes: list[Outcome] = []
        self._last_with_workers = time.monotonic()
        self._next_look = 0.0

    def __enter__(self) -> "Dispatcher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_for_workers(self, count: int, seconds: float) -> int:
        """Wait at most `seconds` until `count` workers have joined; returns how many have.

        Raises NoWorkers if none has.
        """
        end = time.monotonic() + seconds
        while len(self.membership.live) < count and time.monotonic() < end:
            self._turn(min(LOOK_SECONDS, max(0.0, end - time.monotonic())))
        if not self.membership.live:
            raise NoWorkers(self._silence(seconds))
        return len(self.membership.live)

    @property
    def live(self) -> frozenset[int]:
        """The workers in the cluster."""
        if self._drive is None:
            return self.membership.live
        return self._drive.live

    def hold_parameters_on(self, tasks: frozenset[int]) -> None:
        """Note that these workers hold parameters: the run ends when one of them is lost."""
        self._holders = tasks
        for task in tasks:
            self._guardian.guard(name_of(task))

    def drain(self, task: int, seconds: float) -> Drain:
        """Give the worker no new item, await its last one, and take it out of the cluster.

        Call it from another thread than the one that runs items. The worker stays out until its
        process has ended and a new one answers, or for `TimeLimits.drained_seconds` if the process
        does not end. The request stands even if `seconds` pass.
        """
        if task not in self._addresses:
            return Drain.UNKNOWN
        if task in self._holders:
            return Drain.HOLDS_PARAMETERS
        if self._drains.wait(task, lambda: self._events.put(DrainAsked(task)), seconds):
            return Drain.DRAINED
        if self.membership.replaceable(task):
            return Drain.BUSY
        return Drain.LAST

    def run(
        self,
        items: Iterable[Item] | ItemSource,
        stop: Callable[[], bool] = lambda: False,
        linger_seconds: float = LINGER_SECONDS,
    ) -> Iterator[Outcome]:
        """Yield the outcome of each item, in the order in which they come; every item exactly once.

        It draws items as workers become free, those of an iterable in order. Once `stop()` is true
        it draws no more, and waits at most `linger_seconds` for items under way, even if no worker
        answers. Raises ParameterServerLost, NoWorkers, or ClusterError when an item fails on every
        attempt.
        """
        self._last_with_workers = time.monotonic()
        try:
            source = InOrder(items) if isinstance(items, Iterable) else items
            yield from self._outcomes_of(source, stop, linger_seconds)
        finally:
            # Ended by an error, or by a caller that stops reading: the next run starts without open
            # items.
            self.membership.withdraw()
            self._outcomes.clear()
            self._drive = None

    def _outcomes_of(
        self, source: ItemSource, stop: Callable[[], bool], linger_seconds: float
    ) -> Iterator[Outcome]:
        self._drive = drive = ItemDrive(self.membership, source)
        stopped = False
        linger_until = float("inf")
        while True:
            if not stopped and stop():
                stopped = True
                linger_until = time.monotonic() + linger_seconds
            if self._outcomes:
                yield self._outcomes.pop(0)
                continue
            drive.forget_withdrawn()
            if not stopped:
                for instruction in drive.draw(time.monotonic()):
                    self._carry_out([instruction])
            if (stopped or drive.exhausted()) and (
                self.membership.open_items == 0 or time.monotonic() > linger_until
            ):
                return
            self._turn(LOOK_SECONDS)
            if self.membership.live:
                self._last_with_workers = time.monotonic()
            elif time.monotonic() - self._last_with_workers > self._patience_seconds:
                raise NoWorkers(self._silence(self._patience_seconds))

    def close(self) -> None:
        """Leave the workers and end our threads.

        Never waits long for stuck calls, however many there are.
        """
        if self._closed.is_set():
            return
        self._closed.set()
        self._drains.close()
        for thread in self._threads.values():
            thread.close()
        end = time.monotonic() + LANES_SECONDS
        for thread in self._threads.values():
            thread.join(max(0.0, end - time.monotonic()))
        self._prober.close()

    def _turn(self, longest: float) -> None:
        """Wait for an event or the next due time, and handle all queued events."""
        begin = time.monotonic()
        if begin >= self._next_look:
            self._next_look = begin + LOOK_SECONDS
            self._probe_away(begin)
        due = min(self.membership.next_due() or float("inf"), self._changes.settled_at(begin))
        wait = max(0.0, min(longest, due - begin))
        # Read all queued events before the clock: a reply that waited in the queue is not overdue.
        with contextlib.suppress(queue.Empty):
            event = self._events.get(timeout=wait)
            while True:
                self._carry_out(self.membership.handle(event, time.monotonic()))
                event = self._events.get_nowait()
        raise_if_cut_off()
        now = time.monotonic()
        self._excuse(now - begin - wait)
        self._carry_out(self.membership.tick(now))
        self._ask_servers()
        if self._changes.due(now):
            self._change()
        self._excuse(time.monotonic() - now)

    def _excuse(self, overslept_seconds: float) -> None:
        if overslept_seconds > STANDSTILL_SECONDS:
            log.warning(
                "the coordinator stood still for %.1f s; deadlines move by as much",
                overslept_seconds,
            )
            self.membership.excuse(overslept_seconds)

    def _probe_away(self, now: float) -> None:
        for task in self.membership.absent(now):
            self._look_for(task, None)
        for task in self.membership.drained:
            self._look_for(task, Silent(task))

    def _look_for(self, task: int, silent: Silent | None) -> None:
        def report(alive: bool) -> None:
            self._looking.discard(task)
            if alive:
                self._events.put(Answered(task))
                return
            self._runtime.refused.pop(task, None)  # another process may come there, which is right
            if silent is not None:
                self._events.put(silent)

        if task not in self._looking:
            self._looking.add(task)
            self._ask(task, report)

    def _ask(self, task: int, report: Callable[[bool], None]) -> None:
        self._prober.ask(self._guardian.addresses[name_of(task)], PROBE_SECONDS, report)

    def _probe(self, task: int) -> None:
        self._ask(task, lambda alive: self._events.put(Probed(task, alive)))

    def _ask_servers(self) -> None:
        """Ask all servers once for all workers that have left: a server may be lost."""
        doubts = self._doubts
        self._doubts = []
        if doubts:
            raise_if_server_lost(self._runtime, doubts)

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Deliver(outcome):
                    self._outcomes.append(outcome)
                case Dispatch(task, item, attempt):
                    self._threads[task].call(item, attempt, self._strike(task, item))
                case ProbeSuspect(task):
                    log.warning("%s is overdue: the others get its item, probing it", name_of(task))
                    self._probe(task)
                case Fence(task, reason):
                    log.warning("fencing %s: %s", name_of(task), reason)
                    self._guardian.fence(name_of(task))
                case Abandon(task):
                    self._threads.pop(task).close()
                case Drop(task, reason):
                    self._drop(task, reason)
                case ReleaseWorker(task):
                    log.info(
                        "%s is drained; %d of %d workers continue", name_of(task), *self._present()
                    )
                    self._changes.leave(task)
                case Add(task):
                    self._changes.join(task)
                case GiveUp(item, reason):
                    self._ask_servers()
                    raise ClusterError(
                        f"{item.function} (item {item.id}) failed on every attempt; the last:"
                        f" {reason}. If the workers died of it, see their logs: a smaller model,"
                        " batch_size or chunk takes less memory"
                    )

    def _strike(self, task: int, item: Item) -> Strike | None:
        if self._chaos is None:
            return None
        attempts = self.membership.attempts(item)
        live = self.membership.live
        strike = self._chaos.dispatched(task, attempts, live, self._guardian.cut)
        # no fault in the delivery of an item that must never run twice
        if item.repeatable:
            return strike
        return None

    def _change(self) -> None:
        departed, events = self._changes.make(self._doubts.append)
        self.membership.redefined()
        self._ask_servers()
        for task in departed:
            self._drains.done(task)
        for event in events:
            if isinstance(event, Joined):
                self._welcome(event.task, len(self.membership.live) + 1)
            self._carry_out(self.membership.handle(event, time.monotonic()))

    def _welcome(self, task: int, present: int) -> None:
        if task not in self._threads:
            if self._chaos is None:
                injected = []
            else:
                injected = [self._chaos.injected]
            self._threads[task] = WorkerThread(self._runtime, task, self._events, *injected)
        # its departure was a warning
        if task in self._left:
            level = logging.WARNING
            word = "is back"
        else:
            level = logging.INFO
            word = "joined"
        log.log(
            level, "%s %s; %d of %d workers", name_of(task), word, present, len(self._addresses)
        )
        self._left.discard(task)

    def _drop(self, task: int, reason: str) -> None:
        self._doubts.append(reason)
        if task in self._holders:
            raise holder_lost(name_of(task), reason)
        log.warning(
            "%s left (%s); %d of %d workers continue", name_of(task), reason, *self._present()
        )
        self._left.add(task)
        self._changes.leave(task)

    def _present(self) -> tuple[int, int]:
        return len(self.membership.live), len(self._addresses)

    def _silence(self, seconds: float) -> str:
        addresses = ", ".join(
            f"worker:{task} at {host}:{port}" for task, (host, port) in self._addresses.items()
        )
        return (
            f"no worker answered within {seconds:.0f} s ({addresses}): are they started, and on"
            " these ports?"
        )
