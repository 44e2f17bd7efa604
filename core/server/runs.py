"""The runs that a role works on: their names in its log, and what follows when they end."""

import logging
import threading
from collections.abc import Callable
from functools import partial

from core.control.door import RateLimitedLog
from core.logs.lines import Speaker
from core.metrics.process import STATUS, tasks_left, thread_count
from core.server.process import return_memory

RUN_LINES_A_MINUTE = 60

logger = logging.getLogger("pscluster.role")


def read_threads() -> tuple[int, int]:
    """Return the threads of this process, and how many more its limits leave."""
    return thread_count(STATUS.read_text()), tasks_left()


def reason_to_restart(at_first: int, threads: int, room: int) -> str | None:
    """Return why a role with no open run ends for a new process to start; None if it stays.

    It stays while its limits leave `room` for as many threads again: during a run it has more of
    them. A coordinator that connects leaves four in each server, and so does each update by which
    workers join: a GrpcEagerClientThread (TensorFlow's grpc_eager_client.cc) ends only after a
    call's answer, and gets none once its client has gone.
    """
    surplus = threads - at_first
    if surplus <= 0 or threads <= room:
        return None
    return (
        f"restarts: it has {threads} threads, {surplus} more than before its first run, which"
        f" TensorFlow keeps, and its limits leave {room}"
    )


class Runs:
    """The runs of a role process, one after the other: the latest to begin is the open one."""

    def __init__(self, speaker: Speaker, leave: Callable[[str], object] | None) -> None:
        """`leave` ends this process with a reason; None where no supervisor starts another one."""
        self._speaker = speaker
        self._leave = leave
        self._lines = RateLimitedLog(logger, logging.INFO, most=RUN_LINES_A_MINUTE)
        self._giving = threading.Lock()
        self._turn = threading.Lock()
        self._at_first = 0

    def begin(self, run: str) -> None:
        """Name the run in each log line until it ends or another one begins."""
        with self._turn:
            self._at_first = self._at_first or read_threads()[0]
            if run == self._speaker.run:
                return  # the coordinator repeats it
            self._speaker.run = run
        self._lines.say(f"run {run} begins")

    def end(self, run: str) -> Callable[[], None] | None:
        """Return what ends this process once the request is answered; None if it stays.

        Then it hands freed memory back.
        """
        if run != self._speaker.run:
            return None
        self._lines.say(f"run {run} is over")
        self._speaker.run = ""
        reason = reason_to_restart(self._at_first, *read_threads())
        if self._leave is not None and reason is not None:
            return partial(self._restart, self._leave, reason)
        # The coordinator has left the cluster before this request, and does not wait for us.
        if not self._giving.locked():
            threading.Thread(target=self._give_back, name="give-back", daemon=True).start()
        return None

    def _restart(self, leave: Callable[[str], object], reason: str) -> None:
        # A run that begins meanwhile waits in `begin`. Its coordinator gets no answer, and asks
        # the next process.
        with self._turn:
            if not self._speaker.run:
                leave(reason)

    def _give_back(self) -> None:
        with self._giving:
            return_memory()
