"""One operator at a time: a lock on the coordinator's node that lives as long as a connection."""

import getpass
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from core.errors import ClusterError
from deploy.common.command_line import shell
from deploy.common.texts import filled

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
    connection of a machine that went off within a quarter of an hour. A node that does not answer
    delays no action: that says what is wrong with it. Raises ClusterError with the holder.
    """
    hub = cluster.inventory.of_role("coordinator")[0].node
    jobs: list[str] = []
    refusals: list[str] = []
    answered = threading.Event()
    over = threading.Event()

    def take(line: str) -> None:
        if line.startswith("free"):
            jobs.extend(line.split()[1:])
            answered.set()
        elif line.startswith("another operator"):
            refusals.append(line)

    def hold() -> None:
        operator = f"{getpass.getuser()}@{socket.gethostname()}: `fab deploy {action}`"
        words = shell(filled("converge/operator_lock.sh"), PATH, operator, WAIT_SECONDS)
        with suppress(ClusterError):
            fleet.nodes[hub].stream(words, take, root=True, stop=over)
        answered.set()

    with cluster.fleet() as fleet:
        holding = threading.Thread(target=hold)
        holding.start()
        try:
            answered.wait(30.0)
            for line in refusals:
                raise ClusterError(f"{hub}: {line}")
            yield jobs
        finally:
            over.set()
            holding.join()
