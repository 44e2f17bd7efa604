"""What the fixture `fab` of the tests is and gives."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """What a person and a script see of one call."""

    code: int
    stdout: str
    stderr: str


Fab = Callable[[str], Outcome]
