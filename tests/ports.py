"""Ports for what a test starts: no other test's, and none that the kernel gives to connections.

A cluster's ports are drawn before its roles and jobs take them, so two tests that run side by side
could draw the same. Each test process therefore draws from a share of its own, whichever run and
account it belongs to.
"""

import socket
from collections.abc import Callable
from functools import partial

from core.ground import ports
from core.ground.ports import free_ports

__all__ = ["draw_apart", "free_port", "free_ports"]

SHARE = 1000
"""What `free_ports` needs at least."""


def free_port() -> int:
    """A port on which nothing listens."""
    (port,) = free_ports(1)
    return port


def draw_apart() -> Callable[[], None]:
    """Draws this process's ports from a share that it claims; the result gives the share back.

    Without a free share it draws from all.
    """
    first = ports.LOWEST_PORT
    end = ports._ephemeral_start()
    for lowest in range(first, end - SHARE + 1, SHARE):
        if claim := _claimed(lowest):
            ports.LOWEST_PORT = lowest
            ports._ephemeral_start = partial(int, lowest + SHARE)
            return claim.close
    return lambda: None


def _claimed(lowest: int) -> socket.socket | None:
    """A claim is an abstract name: of this network, as ports are, and gone with its process."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0pscluster-tests-{lowest}")
    except OSError:
        claim.close()
        return None
    return claim
