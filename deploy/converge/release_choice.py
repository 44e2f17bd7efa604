"""Which release and which environment a node is to run."""

from dataclasses import dataclass
from typing import Self

from deploy.converge.machine_facts import MachineFacts
from deploy.release.code_wheel import CodeWheel, build_code_wheel
from deploy.release.requirements import committed, environment_key


@dataclass(frozen=True)
class ReleaseChoice:
    """The code, by the hash of its wheel, and for each kind of node the environment, by the hash of its lock."""

    code: CodeWheel
    requirements: str

    @classmethod
    def of_this_checkout(cls) -> Self:
        """The release that the files here make."""
        return cls(build_code_wheel(), committed())

    def environment_for(self, facts: MachineFacts) -> str | None:
        """The environment of a node; None for one that has no Python we have wheels for."""
        if facts.python_version is None:
            return None
        return environment_key(self.requirements, facts.python_version, facts.machine)
