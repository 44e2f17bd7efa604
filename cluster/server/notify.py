"""The readiness protocol of systemd (sd_notify(3)), which a supervisor may speak as well."""

import contextlib
import os
import socket
from collections.abc import Mapping

_connected: dict[str, socket.socket] = {}


def keep_channel(environ: Mapping[str, str] = os.environ) -> None:
    """Connect to $NOTIFY_SOCKET before this process becomes an account that cannot reach it. Never raises OSError."""
    address = _address(environ)
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        channel = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        if address:
            channel.connect(address)
            _connected[address] = channel
            stack.pop_all()


def notify(state: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Send a state such as `READY=1` to $NOTIFY_SOCKET; False where nobody listens. Never raises OSError."""
    address = _address(environ)
    if not address:
        return False
    with contextlib.suppress(OSError):
        if address in _connected:
            _connected[address].send(state.encode())
            return True
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(state.encode(), address)
            return True
    return False


def _address(environ: Mapping[str, str]) -> str:
    address = environ.get("NOTIFY_SOCKET", "")
    return "\0" + address[1:] if address.startswith("@") else address  # Linux's abstract namespace
