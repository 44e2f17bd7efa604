"""The readiness protocol of systemd (sd_notify(3)), which a supervisor may speak as well."""

import contextlib
import os
import socket
from collections.abc import Mapping


def notify(state: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Send a state such as `READY=1` to $NOTIFY_SOCKET; False where nobody listens. Never raises OSError."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):  # Linux's abstract namespace
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.sendto(state.encode(), address)
        return True
    return False
