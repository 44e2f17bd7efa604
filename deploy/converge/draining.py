"""Draining workers before their restart: a running job gives them no new work.

The coordinator takes such a request from its own node only, so that a script on that node asks for
it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.control.client import program
from core.ground.errors import ClusterError
from core.logs import say
from deploy.cluster.fleet import Fleet
from deploy.rooted.commands import PYTHON

if TYPE_CHECKING:
    from core.inventory import Inventory, Task

DRAIN_SECONDS = 60.0
"""The wait for a worker: most items take a second or two, the first on a Raspberry Pi longer."""

SPARE_SECONDS = 20.0
"""The time that the script may take beyond it."""

_MAIN = """\
import sys
from contextlib import suppress
from concurrent.futures import ThreadPoolExecutor
address, seconds, *workers = sys.argv[1:]
if token is None:
    with suppress(OSError), open("/etc/pscluster/token") as file:
        token = file.read().strip()
def asked(method, target, patience):
    try:
        key = key_of(token, "coordinator:0")
        most = {"deadline_seconds": patience, "most_bytes": 1000}
        answer = ask(address, method, target, key=key, **most)
        return answer.status, " ".join(answer.text.split())
    except NoAnswerError as error:
        return (-1 if error.refused else 0), error
status, words = asked("GET", "/ready", 5)
print("coordinator", status, words)
if status > 0 and workers:
    def drained(name):
        return name, *asked("POST", f"/drain/{name}?seconds={seconds}", float(seconds) + 10)
    for answer in ThreadPoolExecutor(len(workers)).map(drained, workers):
        print(*answer)
"""


def script_for(token: str | None) -> bytes:
    """Return the script that has the token in its text, not in an environment for all its kin.

    Only the machine of a local cluster knows one here; a node has it in a file.
    """
    return program(f"token = {token!r}\n{_MAIN}")


SCRIPT = script_for(None)
"""The program for `/usr/bin/python3 - ADDRESS SECONDS WORKER...`."""


@dataclass(frozen=True)
class Drained:
    """The result. `trouble` are lines for the person; without a job there are none."""

    job: bool
    workers: tuple[str, ...] = ()
    trouble: tuple[str, ...] = ()


def workers_to_drain(restarted: Sequence["Task"], workers: Sequence["Task"]) -> list[str]:
    """Return the cluster's `workers` that are worth a wait before all of `restarted` restart.

    With a parameter server among them none: the job loses everything since its last checkpoint
    anyway. None either if no worker would remain: the job stands still until they are back, drained
    or not.
    """
    restarted_workers = [task.name for task in restarted if task.role == "worker"]
    servers = any(task.role == "ps" for task in restarted)
    if servers or len(restarted_workers) == len(workers):
        return []
    return restarted_workers


def drain_words(
    coordinator: "Task", workers: Sequence[str], seconds: float = DRAIN_SECONDS
) -> list[str]:
    """The command that SCRIPT is the standard input of."""
    return [PYTHON, "-", coordinator.metrics_address, f"{seconds:g}", *workers]


def read_answers(text: str, workers: Sequence[str]) -> Drained:
    """Parse what the script printed.

    Each line has a name, a status of HTTP (0: no answer, -1: the port is closed) and words.
    """
    answers: dict[str, tuple[int, str]] = {}
    for line in text.splitlines():
        name, _, answer = line.partition(" ")
        code, _, message = answer.partition(" ")
        if name in ("coordinator", *workers) and re.fullmatch(
            r"-1|\d{1,3}", code
        ):  # else the account's own greeting
            answers[name] = int(code), message
    status, message = answers.get("coordinator", (0, "no answer of the coordinator's node"))
    if status == -1:
        return Drained(job=False)
    if status == 0:
        return Drained(job=False, trouble=(nothing_drained(message),))
    drained = tuple(name for name in workers if answers.get(name, (0, ""))[0] == 200)
    trouble = []
    for name in workers:
        status, message = answers.get(name, (0, "no answer"))
        if status not in (200, -1):  # the port is closed: the job has ended meanwhile
            trouble.append(
                f"{name} could not be drained ({message}): restarted anyway, others take over its"
                " work"
            )
    return Drained(True, drained, tuple(trouble))


def nothing_drained(why: object) -> str:
    """The line for a coordinator's node that does not answer."""
    return f"nothing was drained, should a job be running: {why}"


def lost_parameters(servers: Sequence[str]) -> str:
    """Say what restarting these parameter servers means for the job that runs."""
    if len(servers) == 1:
        word = "holds"
    else:
        word = "hold"
    return (
        f"{', '.join(servers)} {word} the parameters of the job that runs: a training goes back to"
        " its last checkpoint, another job starts over"
    )


def drain(
    inventory: "Inventory", fleet: Fleet, tasks: Sequence["Task"], seconds: float = DRAIN_SECONDS
) -> None:
    """Have the workers among `tasks`, about to be restarted, drained if a job runs.

    It prints what could not be drained, and ends nothing for it: the engine copes without a worker
    that was not drained.
    """
    servers = [task.name for task in tasks if task.role == "ps"]
    workers = workers_to_drain(tasks, inventory.of_role("worker"))
    if not servers and not workers:
        return
    drained = _asked(inventory, fleet, workers, seconds)
    if drained.workers:
        say(f"drained {', '.join(drained.workers)}")
    for line in drained.trouble:
        say(line)
    if drained.job and servers:
        say(lost_parameters(servers))


def _asked(inventory: "Inventory", fleet: Fleet, workers: Sequence[str], seconds: float) -> Drained:
    coordinator = inventory.of_role("coordinator")[0]
    try:
        done = fleet.nodes[coordinator.node].run(
            drain_words(coordinator, workers, seconds),
            stdin=script_for(fleet.token),
            root=True,  # a firewall may let the cluster's own account and root alone reach the port
            deadline_seconds=seconds + SPARE_SECONDS,
        )
    except ClusterError as error:
        return Drained(job=False, trouble=(nothing_drained(error),))
    if not done.ok:
        return Drained(job=False, trouble=(nothing_drained(" | ".join(done.last_lines[-1:])),))
    return read_answers(done.text, workers)
