"""The receiving end of sd_notify(3): which child said that it is ready."""

import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True)
class Notice:
    """One message: the sender's pid as the kernel vouches for it, and its `KEY=value` lines."""

    pid: int
    values: dict[str, str]

    @property
    def ready(self) -> bool:
        """Whether the sender serves from now on."""
        return self.values.get("READY") == "1"


class NotifySocket:
    """A datagram socket at `path`; non-blocking, for an event loop's reader."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._socket.setblocking(False)
            self._socket.bind(os.fspath(path))
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Descriptor to watch."""
        return self._socket.fileno()

    def receive(self) -> Notice | None:
        """The next message, None when there is none or it carries no sender."""
        try:
            data, ancillary, _, _ = self._socket.recvmsg(4096, socket.CMSG_SPACE(_CREDENTIALS.size))
        except BlockingIOError:
            return None
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                pid, _, _ = _CREDENTIALS.unpack(content[: _CREDENTIALS.size])
                lines = data.decode("utf-8", errors="replace").splitlines()
                return Notice(pid, dict(line.split("=", 1) for line in lines if "=" in line))
        return None

    def close(self) -> None:
        """Close and remove the socket."""
        self._socket.close()
        self.path.unlink(missing_ok=True)
