"""What an operator asks of the coordinator's node: a lock, and to drain workers before a restart.

One operator works at a time: the lock lives as long as a connection. A running job gives drained
workers no new work; the coordinator takes that request from its own node only, so that a script on
that node asks for it.
"""

import getpass
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.control.client import program
from core.ground.errors import ClusterError
from core.logs import say
from deploy.cluster.fleet import Fleet
from deploy.common.command_line import filled, shell
from deploy.rooted.commands import PYTHON

if TYPE_CHECKING:
    from core.inventory import Inventory, Task
    from deploy.cluster.cluster import ManagedCluster


DRAIN_SECONDS = 60.0
"""The wait for a worker: most items take a second or two, the first on a Raspberry Pi longer."""

SPARE_SECONDS = 20.0
"""The time that the script may take beyond it."""

_DRAIN_MAIN = """\
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
    return program(f"token = {token!r}\n{_DRAIN_MAIN}")


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
    drained = _ask_to_drain(inventory, fleet, workers, seconds)
    if drained.workers:
        say(f"drained {', '.join(drained.workers)}")
    for line in drained.trouble:
        say(line)
    if drained.job and servers:
        say(lost_parameters(servers))


def _ask_to_drain(
    inventory: "Inventory", fleet: Fleet, workers: Sequence[str], seconds: float
) -> Drained:
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


OPERATOR_LOCK = "/run/pscluster-operator"
"""The lock, in a folder that only root writes; a restart of the node clears it."""
WAIT_SECONDS = 10
"""The wait for a busy node, which still ends the process of a command that has ended here."""


@contextmanager
def only_operator(cluster: "ManagedCluster", action: str) -> Iterator[Sequence[str]]:
    """Hold the lock of the nodes while `action` changes them; yields the ids of jobs that run.

    A process on the node has it (flock(2)) and ends with its connection, which is not the one of
    the action: a deployment logs in again. It prints a line each 15 seconds, so that TCP ends the
    connection of a machine that went off within a quarter of an hour. A node that cannot give the
    lock, or loses it, delays no action: a line names that, and the action what is wrong with it.
    Raises ClusterError with the holder.
    """
    hub = cluster.inventory.of_role("coordinator")[0].node
    jobs: list[str] = []
    refusals: list[str] = []
    is_free = False
    lost_by = "no answer within half a minute"
    answered = threading.Event()
    over = threading.Event()

    def take(line: str) -> None:
        nonlocal is_free
        if line.startswith("free"):
            is_free = True
            jobs.extend(line.split()[1:])
            answered.set()
        elif line.startswith("another operator"):
            refusals.append(line)

    def hold() -> None:
        operator = f"{getpass.getuser()}@{socket.gethostname()}: `fab deploy {action}`"
        command = shell(filled("converge/operator_lock.sh"), OPERATOR_LOCK, operator, WAIT_SECONDS)
        nonlocal lost_by
        try:
            code = fleet.nodes[hub].stream(command, take, root=True, stop=over)
            lost_by = f"its process ended with {code}"
        except ClusterError as error:
            lost_by = str(error)
        if is_free and not over.is_set():
            warn("lost")
        answered.set()

    def warn(state: str) -> None:
        say(
            f"{hub}: the lock of operators is {state} ({lost_by}): another may change these nodes"
            " meanwhile, and a job may run there that this interrupts",
            error=True,
        )

    with cluster.fleet() as fleet:
        holding = threading.Thread(target=hold)
        holding.start()
        try:
            answered.wait(30.0)
            for line in refusals:
                raise ClusterError(f"{hub}: {line}")
            if not is_free:
                warn("not there")
            yield jobs
        finally:
            over.set()
            holding.join()
