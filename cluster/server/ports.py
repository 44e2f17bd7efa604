"""Whether a port is free, and which process has it if not."""

import contextlib
import errno
import socket
import textwrap

import psutil

from cluster.errors import ClusterError, ExitCode

COMMAND_CHARACTERS = 80


class PortTakenError(ClusterError):
    """Another socket already listens on the port."""

    exit_code = ExitCode.PORT_TAKEN


def check_free(host: str, port: int, purpose: str) -> None:
    """Raises PortTakenError when something listens on the port, ClusterError when the address is not bindable here.

    `host` "" stands for every interface, as TensorFlow binds. Connections in TIME_WAIT, left by a process that ended,
    do not count: servers bind over them.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
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
        return ClusterError(f"{purpose} cannot listen on {where}: no interface of this machine has that address")
    if error.errno == errno.EACCES:
        return ClusterError(f"{purpose} cannot listen on {where}: ports below 1024 need root, choose a higher one")
    return ClusterError(f"{purpose} cannot listen on {where}: {error.strerror}")


def taken(port: int, purpose: str) -> PortTakenError:
    """The error for a port that another process has; names the process where the system knows it."""
    return PortTakenError(f"port {port} for {purpose} is taken{_holder(port)}: stop that, or choose another port")


def _holder(port: int) -> str:
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr.port == port and connection.status == psutil.CONN_LISTEN:
                if connection.pid is None:
                    return " by a process of another user"
                # One line, also for program text of `python -c`: of several lines only the last would be shown.
                command = " ".join(psutil.Process(connection.pid).cmdline()[:4])
                shown = textwrap.shorten(command, COMMAND_CHARACTERS, placeholder="...")
                return f" by process {connection.pid} ({shown})"
    return ""
