"""Whether a role process that ended is started again, and after how long.

Pure: no process, no clock.
"""

from dataclasses import dataclass, field
from signal import Signals

from core.ground.errors import ExitCode
from core.ground.waiting import Backoff
from deploy.common.command_line import named

HOPELESS_AT_ANY_TIME = frozenset(
    {ExitCode.BAD_USAGE, ExitCode.WHEEL_MISSING, ExitCode.ILLEGAL_INSTRUCTION, -Signals.SIGILL}
)
"""Return codes that the same command on the same machine gives every time."""

HOPELESS_AT_FIRST = frozenset({ExitCode.PORT_TAKEN, ExitCode.TOO_LITTLE_MEMORY})
"""Exit codes that are a misconfiguration before the role was ever ready, and may pass by themselves
afterwards (an outgoing connection that borrowed the port while the role was down, a job that filled
the memory)."""


@dataclass(frozen=True)
class RoleEnding:
    """How a role process ended: `return_code` as `subprocess` gives it, negative for a signal."""

    return_code: int
    uptime_seconds: float
    reached_ready: bool
    fenced: bool = False

    def describe(self) -> str:
        """`exit code 20 (PORT_TAKEN)`, `signal 9 (SIGKILL)`."""
        return named(self.return_code)


@dataclass(frozen=True)
class History:
    """What the policy remembers of a role.

    These are its failures since it was last healthy, and whether it ever was ready.
    """

    failures: int = 0
    ever_ready: bool = False


@dataclass(frozen=True)
class Decision:
    """Start the role after `delay_seconds`, or leave it failed; `reason` has the numbers."""

    restart: bool
    delay_seconds: float
    reason: str
    history: History


@dataclass(frozen=True)
class RestartPolicy:
    """Doubling delays between restarts, forgotten after a healthy minute, and an end to them.

    A role that was never ready gets `unready_limit` attempts: a person waits for the answer of
    `start`. One that has worked before gets `limit`, because the others' training can outlast a bad
    patch of it.
    """

    backoff: Backoff = field(default_factory=Backoff)
    healthy_seconds: float = 60.0
    unready_limit: int = 3
    limit: int = 10

    def decide(self, ending: RoleEnding, history: History) -> Decision:
        """The decision for one ending, with the history to hand in next time."""
        ever_ready = history.ever_ready or ending.reached_ready
        healthy = ending.reached_ready and ending.uptime_seconds >= self.healthy_seconds
        if healthy:
            past = 0
        else:
            past = history.failures
        if ending.fenced or ending.return_code == ExitCode.RESTART_ASKED:
            if ending.fenced:
                reason = "killed on request"
            else:
                reason = "asked to over its metrics port"
            return Decision(True, 0.0, reason, History(past, ever_ready))
        now = History(past + 1, ever_ready)
        what = f"ended with {ending.describe()} after {ending.uptime_seconds:.1f} s"
        if ever_ready:
            hopeless = HOPELESS_AT_ANY_TIME
        else:
            hopeless = HOPELESS_AT_ANY_TIME | HOPELESS_AT_FIRST
        if ending.return_code in hopeless:
            return Decision(False, 0.0, f"{what}; a restart would end the same way", now)
        if ever_ready:
            allowed = self.limit
            kind = "healthy"
        else:
            allowed = self.unready_limit
            kind = "ready"
        if now.failures >= allowed:
            reason = f"{what}; {now.failures} of {allowed} attempts ended without it being {kind}"
            return Decision(False, 0.0, reason, now)
        delay = self.backoff.seconds(now.failures)
        return Decision(True, delay, f"{what}; failure {now.failures} of {allowed}", now)

    def revived(self, history: History, reached_ready: bool = False) -> History:
        """The history of a role after a requested restart: its failures are forgiven."""
        return History(failures=0, ever_ready=history.ever_ready or reached_ready)
