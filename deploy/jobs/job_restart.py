"""Decides whether and when a job whose coordinator ended is started again. Pure: no process, no clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from signal import Signals

from cluster.errors import ExitCode
from deploy.common.hints import named

_ASKED_TO_END = frozenset({-Signals.SIGINT, -Signals.SIGTERM})
"""A running coordinator catches these and ends with 130; it dies of them only before it has handlers."""


@dataclass(frozen=True)
class JobEnding:
    """The end of a coordinator: `return_code` as `subprocess` gives it, negative for a signal.

    `interrupted`: a person asked the job to end; a signal after that is ours.
    """

    return_code: int
    seconds: float
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """The job's own exit code, or 130 or 1 when a signal ended it."""
        if self.return_code >= 0:
            return self.return_code
        asked = self.interrupted or self.return_code in _ASKED_TO_END
        return ExitCode.CANCELLED if asked else ExitCode.FAILED

    def describe(self) -> str:
        """`ended with signal 9 (SIGKILL) after 12.3 s`, and where to look for the cause."""
        words = f"ended with {named(self.return_code)} after {self.seconds:.1f} s"
        if self.return_code == -Signals.SIGKILL:
            words += " (if it was not sent on purpose, look for out of memory in the kernel's log: dmesg)"
        return words


@dataclass(frozen=True)
class JobDecision:
    """Start the job again after `delay_seconds`, or not; `reason` carries the numbers behind it.

    `reason` is empty for a normal end, which needs no explanation.
    """

    restart: bool
    delay_seconds: float
    reason: str


_LET_IT_END = JobDecision(restart=False, delay_seconds=0.0, reason="")


@dataclass(frozen=True)
class JobRestartPolicy:
    """Doubling delays between restarts, and at most `limit` of them within a sliding window.

    A long training survives any number of losses that are far apart; a job that loses its server again and again within
    minutes makes no progress.
    """

    first_delay_seconds: float = 0.5
    factor: float = 2.0
    longest_delay_seconds: float = 30.0
    limit: int = 5
    window_seconds: float = 600.0

    def decide(self, ending: JobEnding, restarts: Sequence[float], now: float) -> JobDecision:
        """The decision for one ending; `restarts` and `now` are seconds of one monotonic clock."""
        if not self._curable(ending, restarted=bool(restarts)):
            died = ending.return_code < 0 and ending.exit_code == ExitCode.FAILED
            return JobDecision(False, 0.0, f"{ending.describe()}; not restarted") if died else _LET_IT_END
        recent = sum(now - at < self.window_seconds for at in restarts)
        if recent >= self.limit:
            spent = f"{recent} restarts in the last {self.window_seconds:.0f} s, {self.limit} are allowed"
            return JobDecision(False, 0.0, f"{ending.describe()}; not restarted: {spent}")
        delay = min(self.longest_delay_seconds, self.first_delay_seconds * self.factor**recent)
        count = f"restart {recent + 1} of {self.limit} within {self.window_seconds:.0f} s"
        return JobDecision(True, delay, f"{ending.describe()}; {count}, in {delay:.1f} s")

    @staticmethod
    def _curable(ending: JobEnding, *, restarted: bool) -> bool:
        if ending.interrupted or ending.return_code in _ASKED_TO_END:
            return False
        if ending.return_code == -Signals.SIGILL:  # the same instruction comes again
            return False
        if ending.return_code == ExitCode.PORT_TAKEN:
            # It had the port before: while it was gone an outgoing connection may have borrowed it.
            return restarted
        return ending.return_code < 0 or ending.return_code == ExitCode.SERVER_LOST
