"""What came of a command on a node, and what keeps one from being run there at all."""

from dataclasses import dataclass

from cluster.errors import ClusterError

DEADLINE_CODES = frozenset({124, 137})
"""What `timeout` of coreutils ends with: 124, or 137 when the command had to be killed."""

_LAST_LINES = 6


class NodeUnreachableError(ClusterError):
    """No connection, or no login: the message names the node, what came, and what to do."""


class NodeDeadlineError(ClusterError):
    """A command was not done in time; it was ended on the node too."""


class NodeOutputError(ClusterError):
    """A command printed more than it may: it was ended."""


@dataclass(frozen=True)
class Outcome:
    """A command that ran to its end on a node. `stdout` lacks `left_out_bytes` in its middle, and says so there."""

    command: str
    return_code: int
    stdout: bytes
    stderr: str
    seconds: float
    left_out_bytes: int = 0

    @property
    def ok(self) -> bool:
        """Whether it ended with 0."""
        return self.return_code == 0

    @property
    def text(self) -> str:
        """What it printed, decoded; a byte that is no UTF-8 becomes a replacement character."""
        return self.stdout.decode("utf-8", errors="replace")

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The end of what it said: of stderr, or of stdout where stderr is empty."""
        said = self.stderr.strip() or self.text.strip()
        return tuple(said.splitlines()[-_LAST_LINES:])
