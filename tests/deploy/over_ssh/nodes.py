"""Several nodes of a cluster, each of them the same sshd under another name."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from deploy.cluster.connection import NodeConnection
from deploy.cluster.fleet import Fleet
from deploy.cluster.host_keys import PinnedKeys, ask_for_key
from tests.deploy.over_ssh.sshd import Sshd


def trusting(folder: Path, *servers: Sshd) -> PinnedKeys:
    """The pinned keys of servers that run."""
    pinned = PinnedKeys(folder / "known_hosts")
    pinned.record([pinned.standing(one.address(), ask_for_key(one.address())) for one in servers])
    return pinned


@contextmanager
def fleet_of(pinned: PinnedKeys, places: Sequence[tuple[str, Sshd]], parallel: int = 16) -> Iterator[Fleet]:
    """A node for each name and server."""
    with Fleet([NodeConnection(server.address(name), pinned) for name, server in places], parallel) as fleet:
        yield fleet
