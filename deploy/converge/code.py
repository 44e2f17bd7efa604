"""placeholder until deploy.release is merged."""

from dataclasses import dataclass
from pathlib import Path

from deploy.converge.change import Change
from deploy.converge.machine_facts import MachineFacts


@dataclass(frozen=True)
class Environment:
    """Env."""

    key: str
    wheels: str

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """None."""
        return ()


@dataclass(frozen=True)
class Release:
    """Rel."""

    key: str
    environment: str
    wheel: Path

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """None."""
        return ()
