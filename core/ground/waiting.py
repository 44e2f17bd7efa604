"""How long a process waits after failures in a row before it tries again. Pure."""

from dataclasses import dataclass

MOST_DOUBLINGS = 30
"""The wait has reached any ceiling by then, and a power of more failures would overflow."""


@dataclass(frozen=True)
class Backoff:
    """Waits that double with each failure, up to a ceiling."""

    first_seconds: float = 0.5
    longest_seconds: float = 30.0

    def seconds(self, failures: int) -> float:
        """Return the wait after this many failures in a row, one or more."""
        doublings = min(failures - 1, MOST_DOUBLINGS)
        return min(self.longest_seconds, self.first_seconds * 2.0**doublings)
