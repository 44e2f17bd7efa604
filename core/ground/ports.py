"""TCP ports of this machine: which are free, which process has one, why one cannot be bound."""

import contextlib
import errno
import random
import socket
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from core.ground.errors import ClusterError, ExitCode

LOWEST_PORT = 20_000
DEFAULT_EPHEMERAL_START = 32_768
"""Linux's default first port for outgoing connections."""
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
COMMAND_CHARACTERS = 80
ROLES = ("ps_node", "worker_node")
"""Programs of the roles, by the names of their folders in a checkout."""
MOST_ROLES = 128
"""Workers, and parameter servers, that one machine simulates."""


class PortTakenError(ClusterError):
    """Another socket already listens on the port."""

    exit_code = ExitCode.PORT_TAKEN


def every_interface() -> str:
    """Return the host that a server binds for every interface, of IPv6 too where there is one."""
    if socket.has_dualstack_ipv6():
        return "::"
    return ""


def bind_problem(host: str, port: int) -> OSError | None:
    """Return why a server cannot bind the port now, None if it can.

    Connections in TIME_WAIT, left by a process that ended, do not count: servers bind over them.
    """
    if ":" in host:
        family = socket.AF_INET6
    else:
        family = socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:  # "::" is IPv4's too, whatever net.ipv6.bindv6only says
            trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            trial.bind((host, port))
        except OSError as error:
            return error
    return None


def free_of(candidates: Iterable[int], host: str = "") -> Iterator[int]:
    """Yield those ports that a server could bind on `host`; "" is every interface."""
    return (port for port in candidates if bind_problem(host, port) is None)


def free_ports(count: int) -> tuple[int, ...]:
    """Draw `count` ports, ascending, below those the kernel gives to outgoing connections.

    A port above could be another program's connection when the role restarts. Raises ClusterError
    when there are not enough.
    """
    candidates = list(range(LOWEST_PORT, max(LOWEST_PORT + 1000, _ephemeral_start())))
    random.SystemRandom().shuffle(candidates)
    ports = tuple(sorted(islice(free_of(candidates), count)))
    if len(ports) < count:
        raise ClusterError(
            f"expected {count} free TCP ports from {LOWEST_PORT} up, found {len(ports)}: stop what"
            " holds them, or write the ports into the inventory yourself"
        )
    return ports


def _ephemeral_start() -> int:
    try:
        return int(_RANGE_FILE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return DEFAULT_EPHEMERAL_START


def check_free(host: str, port: int, purpose: str) -> None:
    """Raise PortTakenError if something listens on the port.

    Raises ClusterError when the address is not bindable here.

    `host` "" stands for every interface, as TensorFlow binds.
    """
    problem = bind_problem(host, port)
    if problem is not None:
        raise port_refusal(problem, host, port, purpose) from problem


def port_refusal(error: OSError, host: str, port: int, purpose: str) -> ClusterError:
    """The error that says why `host:port` could not be bound."""
    if error.errno == errno.EADDRINUSE:
        return _taken_error(port, purpose)
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


def _taken_error(port: int, purpose: str) -> PortTakenError:
    """Return the error for a port that another process has, with the way on."""
    holder, command = holder_of(port)
    remedy = "stop that, or choose another port"
    for word in map(Path, command):
        if word.name in ROLES:
            remedy = (
                f"a cluster runs in {word.parent}: `fab deploy stop` there, or give this one ports"
                " of its own: fab init --local --out mine.yaml; make run INVENTORY=mine.yaml"
            )
    return PortTakenError(f"port {port} for {purpose} is taken by {holder}: {remedy}")


def holder_of(port: int) -> tuple[str, Sequence[str]]:
    """Return which process listens on the port, in words, and its command, empty if unknown."""
    import psutil  # whose memory a role that binds its own ports does without

    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if (
                connection.laddr
                and connection.laddr.port == port
                and connection.status == psutil.CONN_LISTEN
            ):
                if connection.pid is None:
                    return "a process of another user", ()
                # One line, also for program text of `python -c`: of several lines only the last
                # would be shown.
                command = psutil.Process(connection.pid).cmdline()
                excerpt = textwrap.shorten(
                    " ".join(command[:4]), COMMAND_CHARACTERS, placeholder="..."
                )
                return f"process {connection.pid} ({excerpt})", command
    return "another process", ()
