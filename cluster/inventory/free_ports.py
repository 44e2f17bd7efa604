"""TCP ports nobody uses on this machine, fit to be written into an inventory."""

import random
import socket
from contextlib import ExitStack
from pathlib import Path

from cluster.errors import ClusterError

LOWEST_PORT = 20_000
DEFAULT_EPHEMERAL_START = 32_768
"""Linux's default first port for outgoing connections."""
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> tuple[int, ...]:
    """`count` ports, ascending, drawn at random below those the kernel gives to outgoing connections.

    A port among those would be free now and somebody's connection when the role restarts. Raises ClusterError when
    there are not enough.
    """
    candidates = list(range(LOWEST_PORT, max(LOWEST_PORT + 1000, _ephemeral_start())))
    random.SystemRandom().shuffle(candidates)
    ports: list[int] = []
    with ExitStack() as held:  # all are held until the last is found, or two could be the same
        for port in candidates:
            if len(ports) == count:
                break
            listener = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                listener.bind(("", port))
            except OSError:
                continue
            ports.append(port)
    if len(ports) < count:
        raise ClusterError(
            f"expected {count} free TCP ports from {LOWEST_PORT} up, found {len(ports)}: stop what holds them, "
            "or write the ports into the inventory yourself"
        )
    return tuple(sorted(ports))


def _ephemeral_start() -> int:
    try:
        return int(_RANGE_FILE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return DEFAULT_EPHEMERAL_START
