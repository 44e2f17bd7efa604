"""A connection to an SSH server before its first word: TCP, or a process that carries it."""

import socket
import subprocess
import tempfile
from typing import IO, Any, Self

from deploy.cluster.login import SshAddress
from deploy.cluster.openssh import Route


class Way:
    """An open connection to an SSH server, and the process that carries it, if any."""

    def __init__(
        self,
        sock: Any,
        process: "subprocess.Popen[bytes] | None" = None,
        errors: IO[bytes] | None = None,
    ):
        self.sock = sock
        self._process = process
        self._said = errors
        self.gave_up = False
        """Whether the process ended by itself, with an exit code other than 0. Known after
        `complaint`."""

    @classmethod
    def open(cls, route: Route, connect_seconds: float) -> Self:
        """Connect. Raises OSError."""
        if not route.through:
            if route.source is None:
                source = None
            else:
                source = (route.source, 0)
            return cls(socket.create_connection((route.host, route.port), connect_seconds, source))
        errors = tempfile.TemporaryFile()  # noqa: SIM115  open as long as the connection
        near_end, far_end = socket.socketpair()
        with far_end:
            try:
                process = subprocess.Popen(
                    route.through,
                    stdin=far_end.fileno(),
                    stdout=far_end.fileno(),
                    stderr=errors,
                    start_new_session=True,
                )
            except BaseException:
                near_end.close()
                errors.close()
                raise
        return cls(near_end, process, errors)

    def complaint(self) -> str:
        """Return what the carrying process said on its standard error, empty without one."""
        if self._process is None or self._said is None:
            return ""
        self._end()
        self._said.seek(0)
        lines = self._said.read(100_000).decode(errors="replace").splitlines()
        return " | ".join(line.strip() for line in lines[-3:] if line.strip())

    def close(self) -> None:
        """Close the connection and end the process that carried it."""
        self.sock.close()
        if self._process is not None:
            self._end()
        if self._said is not None:
            self._said.close()

    def _end(self) -> None:
        assert self._process is not None
        try:
            code = self._process.wait(0.5)  # ssh ends by itself when its connection does
            self.gave_up = code != 0
        except subprocess.TimeoutExpired:
            self._process.terminate()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def open_way(address: SshAddress, through: Any = None) -> Way:
    """Connect to the SSH server, through the open connection `through` to a jump host if given.

    Raises OSError, NodeUnreachableError, or paramiko's SSHException of the jump host.
    """
    if through is None:
        return Way.open(address.route, address.connect_seconds)
    where = (address.route.host, address.port)
    channel = through.transport.open_channel(
        "direct-tcpip", where, ("", 0), timeout=address.connect_seconds
    )
    return Way(channel)
