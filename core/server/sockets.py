"""TCP sockets of this machine: free ports, their owners, and how to shut others' sockets."""

import contextlib
import errno
import ipaddress
import os
import socket
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from core.cage.landlock import descriptor_of
from core.ground.addresses import plain_address
from core.ground.errors import ClusterError, ExitCode

COMMAND_CHARACTERS = 80
ROLES = ("ps_node", "worker_node")
"""Programs of the roles, by the names of their folders in a checkout."""
_WORD_DIGITS = 8


class PortTakenError(ClusterError):
    """Another socket already listens on the port."""

    exit_code = ExitCode.PORT_TAKEN


def is_elsewhere(connection: socket.socket) -> bool:
    """Return whether a connection comes from another machine.

    One that was reset meanwhile counts as one of this machine.
    """
    try:
        peer_address = plain_address(connection.getpeername()[0])
        local_address = plain_address(connection.getsockname()[0])
    except OSError:
        return False
    return peer_address != local_address and not peer_address.is_loopback


def check_free(host: str, port: int, purpose: str) -> None:
    """Raise PortTakenError if something listens on the port.

    Raises ClusterError when the address is not bindable here.

    `host` "" stands for every interface, as TensorFlow binds. Connections in TIME_WAIT, left by a
    process that ended, do not count: servers bind over them.
    """
    if ":" in host:
        family = socket.AF_INET6
    else:
        family = socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError as error:
            raise explain(error, host, port, purpose) from error


def explain(error: OSError, host: str, port: int, purpose: str) -> ClusterError:
    """The error that says why `host:port` could not be bound."""
    if error.errno == errno.EADDRINUSE:
        return taken(port, purpose)
    where = f"{host or '*'}:{port}"
    if error.errno == errno.EADDRNOTAVAIL:
        return ClusterError(
            f"{purpose} cannot listen on {where}: no interface of this machine has that address"
        )
    if error.errno == errno.EACCES:
        return ClusterError(
            f"{purpose} cannot listen on {where}: ports below 1024 need root, choose a higher one"
        )
    return ClusterError(f"{purpose} cannot listen on {where}: {error.strerror}")


def taken(port: int, purpose: str) -> PortTakenError:
    """Return the error for a port that another process has, with its name if known."""
    holder, command = _holder(port)
    remedy = "stop that, or choose another port"
    for word in map(Path, command):
        if word.name in ROLES:
            remedy = (
                f"a cluster runs in {word.parent}: `fab deploy stop` there, or give this one ports"
                " of its own: fab init --local --out mine.yaml; make run INVENTORY=mine.yaml"
            )
    return PortTakenError(f"port {port} for {purpose} is taken{holder}: {remedy}")


def _holder(port: int) -> tuple[str, Sequence[str]]:
    """Return which process has the port, in words, and its command; empty where unknown."""
    import psutil  # a watchdog and a supervisor, which only shut sockets, do without its memory

    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if (
                connection.laddr
                and connection.laddr.port == port
                and connection.status == psutil.CONN_LISTEN
            ):
                if connection.pid is None:
                    return " by a process of another user", ()
                # One line, also for program text of `python -c`: of several lines only the last
                # would be shown.
                command = psutil.Process(connection.pid).cmdline()
                excerpt = textwrap.shorten(
                    " ".join(command[:4]), COMMAND_CHARACTERS, placeholder="..."
                )
                return f" by process {connection.pid} ({excerpt})", command
    return "", ()


class Connection(NamedTuple):
    """A line of the kernel's tables.

    `state` is hexadecimal (net/tcp_states.h), the peer's address a plain one.
    """

    port: int
    peer: tuple[str, int]
    state: str
    inode: str


def connections(process: int | str = "self") -> Iterator[Connection]:
    """Yield the TCP sockets that `process` may have, IPv4 and IPv6.

    Connections that wait to be accepted are among them.

    Raises OSError where the kernel does not show them.
    """
    for table in ("tcp", "tcp6"):
        name = f"/proc/{process}/net/{table}"
        with (
            contextlib.suppress(FileNotFoundError),
            open(name, encoding="ascii") as lines,
        ):  # no IPv6: no tcp6
            next(lines)
            for line in lines:
                _, local, peer, state, *_, inode = line.split()[:10]
                address, _, port = peer.rpartition(":")
                yield Connection(
                    int(local.rpartition(":")[2], 16),
                    (_address(address), int(port, 16)),
                    state,
                    inode,
                )


def _address(digits: str) -> str:
    """The address of 32-bit words in the machine's byte order, in hexadecimal."""
    numbers = [int(digits[k : k + _WORD_DIGITS], 16) for k in range(0, len(digits), _WORD_DIGITS)]
    return str(
        plain_address(
            str(
                ipaddress.ip_address(
                    b"".join(number.to_bytes(4, sys.byteorder) for number in numbers)
                )
            )
        )
    )


def sockets_to(process: int, addresses: set[tuple[str, int]]) -> list[int]:
    """Descriptors of `process` whose TCP peer is one of the (address, port) pairs."""
    descriptors = []
    with contextlib.suppress(OSError):
        links = {
            f"socket:[{connection.inode}]"
            for connection in connections(process)
            if connection.peer in addresses
        }
        for name in os.listdir(f"/proc/{process}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{process}/fd/{name}") in links:
                    descriptors.append(int(name))
    return descriptors


def cut(process: int, addresses: set[tuple[str, int]]) -> int:
    """Shut the sockets of `process` to these addresses; returns their number.

    Raises OSError if the kernel refuses: EPERM (ptrace is restricted), ENOSYS (older than Linux
    5.6), or ProcessLookupError when the process is gone.
    """
    descriptors = sockets_to(process, addresses)
    if not descriptors:
        return 0
    handle = os.pidfd_open(process)
    try:
        done = 0
        for descriptor in descriptors:
            try:
                copy = descriptor_of(handle, descriptor)
            except OSError as problem:
                if problem.errno == errno.EBADF:  # closed since we looked
                    continue
                raise
            with socket.socket(fileno=copy) as peer, contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
                done += 1
        return done
    finally:
        os.close(handle)
