"""Every role of the cluster in a new process: asked over its metrics port, awaited until it is ready."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cluster.control.client import NoAnswerError, ask
from cluster.control.token import own_token
from cluster.errors import ClusterError
from deploy.jobs.node_job.restart_verdict import RestartPatience, Step, Verdict

PROCESS_HEADER = "X-PSCluster-Process"
"""Names the process that answers on a role's metrics port (docs/roles.md)."""

ANSWER_SECONDS = 3.0
MOST_ANSWER_BYTES = 65_536
_PAUSE_SECONDS = 0.25
_MOST_AT_ONCE = 16


@dataclass(frozen=True)
class Asked:
    """A role on its way: `old` is the process that was told to end, if one had to."""

    address: str
    step: Step = Step.ASKING
    old: str = ""
    status: int = 0


def bring_roles_back(
    roles: Mapping[str, str],
    say: Callable[[str], None],
    patience: RestartPatience = RestartPatience(),  # noqa: B008
) -> None:
    """Have each role (its metrics address by its name) started anew; back once enough of them are ready.

    `say` is told of those that are left behind. Raises ClusterError when the others are too few for a job.
    """
    if not roles:
        return
    asked = {name: Asked(address) for name, address in roles.items()}
    begun = time.monotonic()
    end = begun + patience.deadline_seconds
    with ThreadPoolExecutor(min(_MOST_AT_ONCE, len(roles)), thread_name_prefix="restart") as pool:
        while True:
            asked = dict(zip(asked, pool.map(lambda one: _advance(one, end), asked.values()), strict=True))
            verdict = patience.decide({name: one.step for name, one in asked.items()}, time.monotonic() - begun)
            if verdict is not Verdict.WAIT:
                break
            time.sleep(_PAUSE_SECONDS)
    behind = "; ".join(_words(name, one) for name, one in asked.items() if one.step is not Step.READY)
    if verdict is Verdict.GIVE_UP:
        raise ClusterError(
            f"the job cannot go on, its roles do not come back within {time.monotonic() - begun:.0f} s: "
            f"{behind}; a job needs every parameter server and at least one worker; "
            "`fab deploy status` shows them"
        )
    if behind:
        say(f"going on without: {behind}")


def _advance(role: Asked, end: float) -> Asked:
    """One request further, answered or given up by `end`."""
    if role.step is Step.ASKING:
        status, process = _request(role.address, "POST", "/restart", end)
        if status == 202:
            return Asked(role.address, Step.RESTARTING, process)
        if status == 200:  # it is only starting: the process that answers is the fresh one
            return Asked(role.address, Step.RESTARTING)
        # No answer, or one that is just coming or going: asked again.
        return Asked(role.address, Step.REFUSED, status=status) if status in (403, 404) else role
    if role.step is Step.RESTARTING:
        status, process = _request(role.address, "GET", "/ready", end)
        if status == 200 and process != role.old:
            return Asked(role.address, Step.READY)
    return role


def _request(address: str, method: str, path: str, end: float) -> tuple[int, str]:
    """Status and process; 0 without an answer."""
    try:
        left = min(ANSWER_SECONDS, end - time.monotonic())
        answer = ask(address, method, path, deadline_seconds=left, most_bytes=MOST_ANSWER_BYTES, token=own_token())
    except NoAnswerError:
        return 0, ""
    return answer.status, answer.headers.get(PROCESS_HEADER.lower(), "")


def _words(name: str, role: Asked) -> str:
    words = f"{name} ({role.address}) {role.step}"
    if role.step is Step.REFUSED:
        words += f" with HTTP status {role.status}: it runs for another coordinator; `fab deploy start` puts it right"
    return words
