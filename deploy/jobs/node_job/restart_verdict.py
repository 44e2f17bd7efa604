"""When roles that were asked to restart are enough for a job. Pure: no socket, no clock."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Step(StrEnum):
    """How far a role is on its way to a new process."""

    ASKING = "does not answer"
    RESTARTING = "was asked and is not ready"
    READY = "ready"
    REFUSED = "refuses"


class Verdict(StrEnum):
    """What to do now."""

    WAIT = "wait"
    GO = "go"
    GIVE_UP = "give up"


@dataclass(frozen=True)
class RestartPatience:
    """How long a job waits for its roles.

    A Pi 3 with a cold SD card needs minutes to load TensorFlow, and one that was asked will come. One that does not
    even answer may be switched off: with every parameter server and a worker at hand the job does not wait for it.
    """

    deadline_seconds: float = 300.0
    silent_worker_seconds: float = 15.0

    def decide(self, roles: Mapping[str, Step], elapsed_seconds: float) -> Verdict:
        """The verdict for roles by name (`ps:0`): a job needs every parameter server and at least one worker."""
        servers = [step for name, step in roles.items() if name.startswith("ps:")]
        workers = [step for name, step in roles.items() if not name.startswith("ps:")]
        if Step.REFUSED in servers or all(step is Step.REFUSED for step in workers):
            return Verdict.GIVE_UP
        overdue = elapsed_seconds >= self.deadline_seconds
        if any(step is not Step.READY for step in servers) or Step.READY not in workers:
            return Verdict.GIVE_UP if overdue else Verdict.WAIT
        worth_waiting = Step.RESTARTING in workers or (
            Step.ASKING in workers and elapsed_seconds < self.silent_worker_seconds
        )
        return Verdict.WAIT if worth_waiting and not overdue else Verdict.GO
