"""Connections that came in from other machines before the port guard was up.

Between a TensorFlow server's `listen` and the guard lie some milliseconds, in which a connection may be made but, as
the server is not yet started, no call is answered. Such connections are shut down before it is started.
"""

import contextlib
import ipaddress
import socket
import sys
import time

from cluster.metrics.sockets import borrowed, is_listening, is_tcp, own_sockets

PATIENCE_SECONDS = 1.0
PAUSE_SECONDS = 0.005
TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
ESTABLISHED, HANDSHAKE = "01", "03"  # net/tcp_states.h; the latter is TCP_SYN_RECV
WORD_DIGITS = 8


def shut_strangers(port: int, *, half_open: bool) -> tuple[int, list[str]]:
    """Shut down the connections to `port` from other machines; returns how many, and the addresses of those left.

    A connection may still wait in the kernel's queue, without a descriptor: it is waited for, a second at most.
    `half_open`: wait for handshakes under way as well, where the guard lets them complete.
    """
    states = {ESTABLISHED, HANDSHAKE} if half_open else {ESTABLISHED}
    deadline = time.monotonic() + PATIENCE_SECONDS
    count = 0
    while left := [remote for remote in _remotes(port, states) if _is_stranger(remote)]:
        count += _shut_accepted(port)
        if time.monotonic() > deadline:
            break
        time.sleep(PAUSE_SECONDS)
    return count, sorted(set(left))


def _shut_accepted(port: int) -> int:
    count = 0
    for descriptor, _ in own_sockets():
        with contextlib.suppress(OSError), borrowed(descriptor) as view:
            if not is_tcp(view) or is_listening(view) or view.getsockname()[1] != port:
                continue
            if _is_stranger(view.getpeername()[0]):
                view.shutdown(socket.SHUT_RDWR)
                count += 1
    return count


def _remotes(port: int, states: set[str]) -> list[str]:
    """Addresses connected to a local port, from the kernel's table: those not yet accepted included."""
    remotes = []
    for table in TABLES:
        with contextlib.suppress(FileNotFoundError), open(table, encoding="ascii") as lines:  # no IPv6: no tcp6
            next(lines)
            for line in lines:
                _, local, remote, state = line.split()[:4]
                if state in states and int(local.rpartition(":")[2], 16) == port:
                    remotes.append(table_address(remote.rpartition(":")[0]))
    return remotes


def table_address(digits: str) -> str:
    """An address as /proc/net/tcp writes it: 32-bit words in the machine's own byte order, in hexadecimal."""
    words = [int(digits[k : k + WORD_DIGITS], 16) for k in range(0, len(digits), WORD_DIGITS)]
    raw = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    return str(ipaddress.ip_address(raw))


def _is_stranger(address: str) -> bool:
    """Whether an address belongs to another machine: only an address of this one can be bound here."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    parsed = getattr(parsed, "ipv4_mapped", None) or parsed
    if parsed.is_loopback:
        return False
    family = socket.AF_INET if parsed.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as trial:
        try:
            trial.bind((str(parsed), 0))
        except OSError:
            return True
    return False
