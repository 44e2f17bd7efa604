"""Every role in a new process: requested on its metrics port, awaited until it is ready."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

from core.control.client import NoAnswerError, ask, key_of
from core.control.own_state import own_token
from core.control.server import PROCESS_HEADER
from core.ground.errors import ClusterError
from core.ground.waiting import pause

ANSWER_SECONDS = 3.0
MOST_ANSWER_BYTES = 65_536
_PAUSE_SECONDS = 0.25
_MOST_AT_ONCE = 16


class RestartStep(StrEnum):
    """The progress of one role to its new process."""

    ASKING = "does not answer"
    RESTARTING = "was asked and is not ready"
    READY = "ready"
    REFUSED = "refuses"


class Verdict(StrEnum):
    """What the job does now."""

    WAIT = "wait"
    GO = "go"
    GIVE_UP = "give up"


@dataclass(frozen=True)
class RestartPatience:
    """How long a job waits for its roles. Pure: no socket, no clock.

    A Pi 3 with a cold SD card needs minutes to load TensorFlow, and a role that accepted the
    request will come. A silent worker may be switched off: with every parameter server and one
    worker ready, the job does not wait for it.
    """

    deadline_seconds: float = 300.0
    silent_worker_seconds: float = 15.0

    def decide(self, roles: Mapping[str, RestartStep], elapsed_seconds: float) -> Verdict:
        """Return the verdict for roles by name: a job needs all servers and one worker."""
        servers = [step for name, step in roles.items() if name.startswith("ps:")]
        workers = [step for name, step in roles.items() if not name.startswith("ps:")]
        if RestartStep.REFUSED in servers or all(step is RestartStep.REFUSED for step in workers):
            return Verdict.GIVE_UP
        overdue = elapsed_seconds >= self.deadline_seconds
        if (
            any(step is not RestartStep.READY for step in servers)
            or RestartStep.READY not in workers
        ):
            if overdue:
                return Verdict.GIVE_UP
            return Verdict.WAIT
        worth_waiting = RestartStep.RESTARTING in workers or (
            RestartStep.ASKING in workers and elapsed_seconds < self.silent_worker_seconds
        )
        if worth_waiting and not overdue:
            return Verdict.WAIT
        return Verdict.GO


@dataclass(frozen=True)
class RestartingRole:
    """One role and its progress. `old` names the process that has to end, if there is one."""

    address: str
    step: RestartStep = RestartStep.ASKING
    old: str = ""
    status: int = 0


def restart_roles(
    roles: Mapping[str, str],
    say: Callable[[str], None],
    patience: RestartPatience = RestartPatience(),  # noqa: B008  frozen
) -> None:
    """Restart each role (its metrics address by its name) and return once enough of them are ready.

    `say` receives a line about roles that are not. Raises ClusterError when the ready ones are too
    few for a job.
    """
    _until_ready({name: RestartingRole(address) for name, address in roles.items()}, say, patience)


def await_roles(
    roles: Mapping[str, str],
    say: Callable[[str], None],
    patience: RestartPatience = RestartPatience(),  # noqa: B008  frozen
) -> None:
    """Return once enough of the roles are ready, for a job that starts while they do.

    Otherwise as `restart_roles`.
    """
    starting = {
        name: RestartingRole(address, RestartStep.RESTARTING) for name, address in roles.items()
    }
    _until_ready(starting, say, patience)


def _until_ready(
    restarting: Mapping[str, RestartingRole], say: Callable[[str], None], patience: RestartPatience
) -> None:
    if not restarting:
        return
    begun = time.monotonic()
    end = begun + patience.deadline_seconds
    with ThreadPoolExecutor(
        min(_MOST_AT_ONCE, len(restarting)), thread_name_prefix="restart"
    ) as pool:
        while True:
            moved = pool.map(lambda entry: _advance(entry[0], entry[1], end), restarting.items())
            restarting = dict(zip(restarting, moved, strict=True))
            verdict = patience.decide(
                {name: role.step for name, role in restarting.items()}, time.monotonic() - begun
            )
            if verdict is not Verdict.WAIT:
                break
            pause(_PAUSE_SECONDS)
    behind = "; ".join(
        _describe(name, role)
        for name, role in restarting.items()
        if role.step is not RestartStep.READY
    )
    if verdict is Verdict.GIVE_UP:
        raise ClusterError(
            f"the job cannot continue, its roles are not ready after {time.monotonic() - begun:.0f}"
            f" s: {behind}; a job needs every parameter server and at least one worker; `fab deploy"
            " status` shows them"
        )
    if behind:
        say(f"continuing without: {behind}")


def _advance(name: str, role: RestartingRole, end: float) -> RestartingRole:
    """Send one request, with an answer by `end` at the latest."""
    seconds = min(ANSWER_SECONDS, end - time.monotonic())
    if role.step is RestartStep.ASKING:
        key = key_of(own_token(), name)
        status, process = request(role.address, "POST", "/restart", seconds, key)
        if status == 202:
            return RestartingRole(role.address, RestartStep.RESTARTING, process)
        if status == 200:  # it is only starting: the process that answers is the fresh one
            return RestartingRole(role.address, RestartStep.RESTARTING)
        # No answer, or one of a process that starts or ends: the next round asks again.
        if status in (403, 404):
            return RestartingRole(role.address, RestartStep.REFUSED, status=status)
        return role
    if role.step is RestartStep.RESTARTING and is_replaced(role.address, role.old, seconds):
        return RestartingRole(role.address, RestartStep.READY)
    return role


def is_replaced(address: str, old: str, seconds: float = ANSWER_SECONDS) -> bool:
    """Return whether a process other than `old` is ready at a role's metrics address."""
    status, process = request(address, "GET", "/ready", seconds)
    return status == 200 and process != old


def request(
    address: str, method: str, path: str, seconds: float, key: str | None = None
) -> tuple[int, str]:
    """Ask a role on its metrics port; return the status and its process, 0 without an answer."""
    try:
        answer = ask(
            address,
            method,
            path,
            deadline_seconds=seconds,
            most_bytes=MOST_ANSWER_BYTES,
            key=key,
        )
    except NoAnswerError:
        return 0, ""
    return answer.status, answer.headers.get(PROCESS_HEADER.lower(), "")


def _describe(name: str, role: RestartingRole) -> str:
    description = f"{name} ({role.address}) {role.step}"
    if role.step is RestartStep.REFUSED:
        description += (
            f" with HTTP status {role.status}: it runs for another coordinator; `fab deploy start`"
            " puts it right"
        )
    return description
