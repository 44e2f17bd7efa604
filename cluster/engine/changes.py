"""Changes of the cluster definition: collected, and made together.

Each change is sent to every live worker and waits for all of them, so one that has stopped holds up the coordinator
until the watchdog cuts it off. So a change waits, for a while, until no worker is under suspicion or fenced: when half
of a cluster stops at once, one definition leaves them all out, and the other half works on meanwhile.
"""

import logging
import threading
import time
from collections.abc import Callable
from enum import Enum

from cluster.engine.lost import first_line
from cluster.engine.membership import Membership, Phase
from cluster.engine.messages import Joined, JoinFailed
from cluster.engine.runtime import Runtime
from cluster.engine.watchdog import Guardian

import tensorflow as tf  # isort: skip

log = logging.getLogger(__name__)

LONGEST_SECONDS = 5.0
"""A change is not put off for longer: a fenced worker's call may take as long as it is waited for."""


class Changes:
    """Who is to leave and to join the definition, and the one place that changes it."""

    def __init__(self, runtime: Runtime, membership: Membership, guardian: Guardian) -> None:
        self._runtime, self._membership, self._guardian = runtime, membership, guardian
        self._leaving: dict[int, None] = {}
        self._joining: dict[int, None] = {}
        self._since: float | None = None

    def leave(self, task: int) -> None:
        """Take the worker out with the next change."""
        self._leaving[task] = None
        self._since = self._since or time.monotonic()

    def join(self, task: int) -> None:
        """Take the worker in with the next change."""
        self._joining[task] = None
        self._since = self._since or time.monotonic()

    def due(self, now: float) -> bool:
        """Whether there is a change to make, and nothing that speaks against making it now."""
        if self._since is None:
            return False
        doubtful = (Phase.SUSPECT, Phase.FENCED)
        calm = all(worker.phase not in doubtful for worker in self._membership.workers.values())
        return calm or now - self._since >= LONGEST_SECONDS

    def make(self, failed: Callable[[str], None]) -> tuple[list[int], list[Joined | JoinFailed]]:
        """Make them: who has left, and what became of each that was to join.

        `failed` is told why a change failed by which workers were to leave: one more may have died meanwhile, whose own
        call will say so. The definition is sent again with the next change.
        """
        leaving, joining = list(self._leaving), list(self._joining)
        self._leaving, self._joining, self._since = {}, {}, None
        if leaving:
            self._leave(leaving, failed)
        return leaving, self._joined(joining)

    def _leave(self, tasks: list[int], failed: Callable[[str], None]) -> None:
        try:
            with self._guardian.quiet():
                self._runtime.update(self._membership.live)
        except tf.errors.OpError as problem:
            failed(first_line(problem))
            log.warning("while dropping %s: %s", ", ".join(map(name_of, tasks)), first_line(problem))
        for task in tasks:  # not before: it may be stopped just while it is taken out
            self._guardian.forget(name_of(task))
            self._guardian.unfence(name_of(task))

    def _joined(self, tasks: list[int]) -> list[Joined | JoinFailed]:
        if not tasks:
            return []
        for task in tasks:
            self._guardian.unfence(name_of(task))
            self._guardian.watch(name_of(task))
        reason = self._refused(frozenset(tasks))
        if reason is None:
            return [Joined(task) for task in tasks]
        if len(tasks) == 1:
            return [JoinFailed(tasks[0], reason)]
        # One of them spoils it for all: each by itself, beside those who are in by then.
        found: list[Joined | JoinFailed] = []
        inside: frozenset[int] = frozenset()
        for task in tasks:
            reason = self._refused(inside | {task})
            inside |= {task} if reason is None else frozenset()
            found.append(Joined(task) if reason is None else JoinFailed(task, reason))
        return found

    def _refused(self, tasks: frozenset[int]) -> str | None:
        try:
            # Measured: without this a worker stopped between its answer and here holds us up until it goes on.
            with self._guardian.quiet():
                self._runtime.update(self._membership.live | tasks)
        except tf.errors.OpError as problem:
            return f"could not join: {first_line(problem)}"
        return None


def name_of(task: int) -> str:
    """`worker:3`."""
    return f"worker:{task}"


class Drain(Enum):
    """What came of the wish to drain a worker."""

    DRAINED = "drained"
    UNKNOWN = "unknown"
    HOLDS_PARAMETERS = "holds parameters"
    LAST = "last"
    """Nobody else was there to go on."""
    BUSY = "busy"
    """It was still at its item when the time was up."""


class Drains:
    """Lets any thread ask for a drain and wait; the dispatcher's own thread says when it is done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, list[threading.Event]] = {}
        self._closed = False

    def wait(self, task: int, ask: Callable[[], None], seconds: float) -> bool:
        """Call `ask`, then wait until `done(task)`, or for so long; whether it was done."""
        done = threading.Event()
        with self._lock:
            if self._closed:
                return True
            self._waiting.setdefault(task, []).append(done)
        ask()
        if done.wait(seconds):
            return True
        with self._lock:
            others = self._waiting.get(task, [])
            if done in others:
                others.remove(done)
        return done.is_set()

    def done(self, task: int) -> None:
        """Whoever waits for this worker need not wait any longer."""
        with self._lock:
            for waiting in self._waiting.pop(task, []):
                waiting.set()

    def close(self) -> None:
        """No work will be given to anybody any more: all are drained."""
        with self._lock:
            self._closed = True
            for waiting in (one for several in self._waiting.values() for one in several):
                waiting.set()
            self._waiting.clear()
