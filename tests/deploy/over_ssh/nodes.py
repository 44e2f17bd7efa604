"""Several nodes of a cluster, each of them the same sshd under another name."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from deploy.cluster.connection import NodeConnection
from deploy.cluster.fleet import Fleet
from deploy.cluster.login import PinnedKeys
from deploy.cluster.refusals import ask_for_key
from deploy.common.command_line import shell
from tests.deploy.over_ssh.sshd import Sshd


def trusting(folder: Path, *servers: Sshd) -> PinnedKeys:
    """The pinned keys of servers that run."""
    pinned = PinnedKeys(folder / "known_hosts")
    pinned.record([pinned.standing(one.address(), ask_for_key(one.address())) for one in servers])
    return pinned


_SESSION = """
process=$PPID
until grep -q sshd /proc/$process/comm; do process=$(cut -d " " -f 4 /proc/$process/stat); done
echo $process
"""


def session_of(node: NodeConnection) -> int:
    """The pid of the server's process for this connection.

    How many shells lie between depends on the account's own: bash becomes its last command.
    """
    return int(node.run(shell(_SESSION)).text)


@contextmanager
def fleet_of(
    pinned: PinnedKeys, places: Sequence[tuple[str, Sshd]], parallel: int = 16
) -> Iterator[Fleet]:
    """A node for each name and server."""
    with Fleet(
        [NodeConnection(server.address(name), pinned) for name, server in places], parallel
    ) as fleet:
        yield fleet
