"""Changes of the cluster definition, made together, and the drains that wait for them.

TensorFlow sends each change to every live worker and waits for all answers, so a stopped worker
blocks the coordinator until the watchdog cuts it off. So a change waits, for a while, until no
worker is suspect or fenced: when half of a cluster stops at once, one change takes out that half,
and the other half works meanwhile.

One failure the engine cannot work around, and it is here too: a process that held parameters is
gone. A worker's call fails with the same words whether a parameter server is lost or only that
worker's way to it. So the word of a worker never ends a job. A server counts as lost if the
watchdog process has cut it off because it answered no probe for too long, if it refuses
connections, or if an operation of the coordinator's own fails there.

One exception: a server that restarts while no worker is there joins the cluster again with the next
worker, and answers the coordinator. Its parameters are gone. Only the call that needs one shows it,
in words of the server's own.
"""

import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import Enum

from core.engine.guardian import Guardian, losses, operation
from core.engine.membership import Membership, Phase
from core.engine.runtime import Runtime, split
from core.engine.workers import Joined, JoinFailed
from core.ground.errors import ClusterError, ExitCode
from core.ground.lazy import tf
from core.ground.waiting import pause
from core.server.sockets import refuses

log = logging.getLogger(__name__)

REFUSED_SECONDS = 1.0
"""Wait for a refusal: a machine that is there refuses at once."""

TRIES = 3
RETRY_SECONDS = 0.5
"""Our own connection may have broken, and mends itself. A restarted server reports it at once."""


FORGOTTEN = re.compile(
    r"Unable to find the relevant tensor remote_handle.*/job:ps/replica:0/task:(\d+)", re.DOTALL
)
"""Error of a server that restarted meanwhile, of a parameter (measured with TensorFlow 2.21)."""


class ParameterServerLost(ClusterError):
    """A server of parameters died, and with it parameters and our TensorFlow context.

    In `allreduce` it is a worker.

    Another process resumes from the last checkpoint; `fab` starts one.
    """

    exit_code = ExitCode.SERVER_LOST


def first_line(problem: "tf.errors.OpError") -> str:
    """The line that says what happened and where, of the many that TensorFlow writes."""
    message = str(problem.message)
    origin = re.search(r"from remote target (.*?):*(?: while|$)", message, re.MULTILINE)
    if origin:
        where = f" (from {origin[1]})"
    else:
        where = ""
    return f"{type(problem).__name__}: {(message.splitlines() or [''])[0]}{where}"


def holder_lost(holder: str, reason: str) -> ParameterServerLost:
    """The error for a lost worker that held a part of the parameters."""
    return ParameterServerLost(
        f"{holder}, or one that it exchanges parameters with, is gone ({reason}), and its part of"
        " them too: `fab job train --resume` continues from the last checkpoint with the workers"
        " there are"
    )


def server_lost(server: str, reason: str) -> ParameterServerLost:
    """The error for a parameter server that is gone."""
    return ParameterServerLost(
        f"parameter server {server} is gone ({reason}). Its parameters went with it: see its log"
        " (`fab deploy logs`); `fab job train --resume` continues from the last checkpoint"
    )


def raise_if_cut_off() -> None:
    """Raise ParameterServerLost if the watchdog has cut off a process that held parameters."""
    for loss in losses():
        if not loss.name:
            raise ParameterServerLost(
                "an operation of this job on its parameter servers did not end within"
                f" {loss.seconds} s, although they answer: see their logs (`fab deploy logs`); `fab"
                " job train --resume` continues from the last checkpoint"
            )
        silent = f"it has answered no probe for {loss.seconds} s"
        if loss.name.startswith("worker:"):
            raise holder_lost(loss.name, silent)
        raise server_lost(f"{loss.name} at {loss.address}", silent)


@contextmanager
def reaching_servers() -> Iterator[None]:
    """Turn TensorFlow's errors from calls to the parameter servers into ParameterServerLost.

    The watchdog process ends a call inside that waits for a silent server, or lasts too long.
    """
    try:
        with operation():
            yield
    except tf.errors.OpError as problem:
        raise_if_cut_off()
        raise ParameterServerLost(
            f"a parameter server failed an operation ({first_line(problem)}): it was killed,"
            " restarted or has no memory left. See its log (`fab deploy logs`); `fab job train"
            " --resume` continues from the last checkpoint"
        ) from problem


@contextmanager
def reaching_holders() -> Iterator[None]:
    """Do as `reaching_servers` for calls to workers that hold the parameters."""
    try:
        with operation():
            yield
    except tf.errors.OpError as problem:
        raise_if_cut_off()
        raise holder_lost("a worker", first_line(problem)) from problem


def raise_if_server_lost(runtime: Runtime, reasons: Sequence[str]) -> None:
    """Raise ParameterServerLost, with a reason, if a server fails the coordinator itself.

    So it does if a reason is that a server has no such parameter any more. All servers are asked at
    the same time.
    """
    for reason in reasons:
        if forgotten := FORGOTTEN.search(reason):
            raise ParameterServerLost(
                f"parameter server ps:{forgotten[1]} has restarted without its parameters"
                f" ({reason}): `fab job train --resume` continues from the last checkpoint"
            )
    addresses = runtime.peers.parameter_servers
    if not addresses:
        return
    with operation(), ThreadPoolExecutor(len(addresses), thread_name_prefix="servers") as pool:
        problems = list(pool.map(lambda task: _problem(runtime, task), range(len(addresses))))
    raise_if_cut_off()
    for task, problem in enumerate(problems):
        if problem:
            raise server_lost(f"ps:{task} at {addresses[task]}", f"{problem}; {reasons[0]}")


def _problem(runtime: Runtime, task: int) -> str | None:
    """Return what is wrong with the server; None if nothing is."""
    address = runtime.peers.parameter_servers[task]
    if refuses(*split(address), REFUSED_SECONDS):
        return "it refuses connections"
    for attempt in range(TRIES):
        try:
            runtime.ask_server(task)
        except tf.errors.UnavailableError as problem:
            reason = first_line(problem)
            log.warning("ps:%d at %s fails us: %s", task, address, reason)
            pause(RETRY_SECONDS * (attempt < TRIES - 1))
        except tf.errors.OpError as problem:
            return f"it does not know us any more: {first_line(problem)}"
        else:
            return None
    return reason


LONGEST_SECONDS = 5.0
"""The longest delay of a change: the call of a fenced worker may return late."""


SETTLE_SECONDS = 0.2
"""Pause after the last worker that left or came: no two calls of many dying ones fail at once."""


class Changes:
    """Collects the workers that leave and join, and changes the definition.

    Nothing else changes it.
    """

    def __init__(self, runtime: Runtime, membership: Membership, guardian: Guardian) -> None:
        self._runtime = runtime
        self._membership = membership
        self._guardian = guardian
        self._leaving: dict[int, None] = {}
        self._joining: dict[int, None] = {}
        self._since: float | None = None
        self._latest = 0.0

    def leave(self, task: int) -> None:
        """Take the worker out with the next change."""
        self._leaving[task] = None
        self._note()

    def join(self, task: int) -> None:
        """Take the worker in with the next change."""
        self._joining[task] = None
        self._note()

    def _note(self) -> None:
        self._latest = time.monotonic()
        self._since = self._since or self._latest

    def settled_at(self, now: float) -> float:
        """Return when the workers that leave and come will have settled.

        It is infinity where they have settled, or none leaves or comes.
        """
        settled = self._latest + SETTLE_SECONDS
        if self._since is not None and settled > now:
            return settled
        return float("inf")

    def due(self, now: float) -> bool:
        """Whether there is a change to make now."""
        if self._since is None:
            return False
        doubtful = (Phase.SUSPECT, Phase.FENCED)
        calm = all(worker.phase not in doubtful for worker in self._membership.workers.values())
        settled = now - self._latest >= SETTLE_SECONDS
        return (calm and settled) or now - self._since >= LONGEST_SECONDS

    def make(self, failed: Callable[[str], None]) -> tuple[list[int], list[Joined | JoinFailed]]:
        """Change the definition; return the workers that left and the result of each that joins.

        `failed` gets the reason when the change that takes workers out fails: another worker may
        have died meanwhile. That worker's own call reports it, and the next change sends the
        definition again.
        """
        leaving = list(self._leaving)
        joining = list(self._joining)
        self._leaving = {}
        self._joining = {}
        self._since = None
        if leaving:
            self._leave(leaving, failed)
        return leaving, self._joined(joining)

    def _leave(self, tasks: list[int], failed: Callable[[str], None]) -> None:
        try:
            with self._guardian.quiet():
                self._runtime.update(self._membership.live)
        except tf.errors.OpError as problem:
            failed(first_line(problem))
            log.warning(
                "while dropping %s: %s", ", ".join(map(name_of, tasks)), first_line(problem)
            )
        for task in tasks:  # not earlier: it may stop while the definition changes
            self._guardian.forget(name_of(task))
            self._guardian.unfence(name_of(task))

    def _joined(self, tasks: list[int]) -> list[Joined | JoinFailed]:
        return [self._proved(outcome) for outcome in self._added(tasks)]

    def _proved(self, outcome: Joined | JoinFailed) -> Joined | JoinFailed:
        if isinstance(outcome, JoinFailed):
            return outcome
        try:
            with self._guardian.quiet():
                reason = self._runtime.refusal(outcome.task)
        except tf.errors.OpError as problem:
            reason = f"could not join: {first_line(problem)}"
        if reason is None:
            return outcome
        return JoinFailed(outcome.task, reason)

    def _added(self, tasks: list[int]) -> list[Joined | JoinFailed]:
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
        # One worker fails the join of all: add them one by one.
        outcomes: list[Joined | JoinFailed] = []
        inside: frozenset[int] = frozenset()
        for task in tasks:
            reason = self._refused(inside | {task})
            inside |= {task} if reason is None else frozenset()
            outcomes.append(Joined(task) if reason is None else JoinFailed(task, reason))
        return outcomes

    def _refused(self, tasks: frozenset[int]) -> str | None:
        try:
            # Measured: without this a worker that stops between its answer and here blocks us until
            # it continues.
            with self._guardian.quiet():
                self._runtime.update(self._membership.live | tasks)
        except tf.errors.OpError as problem:
            return f"could not join: {first_line(problem)}"
        return None


def name_of(task: int) -> str:
    """`worker:3`."""
    return f"worker:{task}"


class Drain(Enum):
    """The result of a drain."""

    DRAINED = "drained"
    UNKNOWN = "unknown"
    HOLDS_PARAMETERS = "holds parameters"
    LAST = "last"
    """No other worker could take its work."""
    BUSY = "busy"
    """It still worked on its item when the time was up."""


class Drains:
    """Lets any thread ask for a drain and wait until the dispatcher's thread reports it done."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._drained: Counter[int] = Counter()
        """Number of drains by worker."""
        self._closed = False

    def wait(self, task: int, ask: Callable[[], None], seconds: float) -> bool:
        """Call `ask`, then wait at most `seconds` for `done(task)`; returns whether it came."""
        with self._changed:
            before = self._drained[task]
            if not self._closed:
                ask()
            return self._changed.wait_for(
                lambda: self._closed or self._drained[task] > before, seconds
            )

    def done(self, task: int) -> None:
        """Wake every thread that waits for this worker."""
        with self._changed:
            self._drained[task] += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Wake every thread: no worker gets work any more, so all are drained."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
