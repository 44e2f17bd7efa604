"""One operator at a time: a lock on the coordinator's node that lives as long as a connection."""

import getpass
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from core.ground.errors import ClusterError
from core.logs.terminal import say
from deploy.common.command_line import filled, shell

if TYPE_CHECKING:
    from deploy.cluster.cluster import ManagedCluster

PATH = "/run/pscluster-operator"
"""Below a folder that only root writes; a restart of the node clears it."""
WAIT_SECONDS = 10
"""A busy node takes some to end the process of a command that has just ended here."""


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
        words = shell(filled("converge/operator_lock.sh"), PATH, operator, WAIT_SECONDS)
        nonlocal lost_by
        try:
            code = fleet.nodes[hub].stream(words, take, root=True, stop=over)
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
