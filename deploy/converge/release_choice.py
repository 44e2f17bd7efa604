"""Which release and which environment a node is to run. Pure data."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deploy.converge.machine_facts import MachineFacts


@dataclass(frozen=True)
class ReleaseChoice:
    """The code, by the hash of its wheel, and for each kind of node the environment, by the hash of its lock."""

    code_key: str
    wheel: Path
    environment_key: Callable[[str, str], str]
    """Of a Python (`3.11`) and an architecture (`aarch64`)."""

    def environment_for(self, facts: MachineFacts) -> str | None:
        """The environment of a node; None for one that has no Python we have wheels for."""
        return None if facts.python_version is None else self.environment_key(facts.python_version, facts.machine)
