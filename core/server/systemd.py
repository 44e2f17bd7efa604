"""Readiness (sd_notify(3)) and heartbeats (WatchdogSec=), for systemd and supervisors."""

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping

_connected: dict[str, socket.socket] = {}

logger = logging.getLogger("pscluster.role")


def keep_channel(environ: Mapping[str, str] = os.environ) -> None:
    """Connect to $NOTIFY_SOCKET before this process becomes an account that cannot.

    Never raises OSError.
    """
    address = _address(environ)
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        channel = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        if address:
            channel.connect(address)
            _connected[address] = channel
            stack.pop_all()


def notify(state: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Send a state such as `READY=1` to $NOTIFY_SOCKET; False where no process listens.

    Never raises OSError.
    """
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
    # Linux's abstract namespace
    if address.startswith("@"):
        return "\0" + address[1:]
    return address


def interval_seconds(
    environ: Mapping[str, str] = os.environ, pid: int | None = None
) -> float | None:
    """The time between heartbeats: a third of $WATCHDOG_USEC.

    None where systemd expects none of this process.

    `pid` stands for another process.
    """
    within = environ.get("WATCHDOG_USEC", "")
    meant = environ.get("WATCHDOG_PID", "")
    if (
        not within.isdecimal()
        or int(within) == 0
        or meant not in ("", str(os.getpid() if pid is None else pid))
    ):
        return None
    return int(within) / 1e6 / 3


def send_heartbeats(
    every_seconds: float,
    answers: Callable[[float], bool],
    notify: Callable[[str], object],
    stop: threading.Event,
) -> threading.Thread:
    """Send `WATCHDOG=1` at this interval from a thread, while the server answers, until `stop`.

    `answers` gets the time it may take. A server that fails once has two more chances before it is
    overdue.
    """

    def beat() -> None:
        well = True
        rest = 0.0
        while not stop.wait(rest):
            begun = time.monotonic()
            # a Pi whose cores are all busy takes a second or two
            before = well
            well = answers(every_seconds)
            if well:
                notify("WATCHDOG=1")
            if well != before:
                if well:
                    state = "serving"
                else:
                    state = "the server does not answer on its own port"
                logger.log(logging.INFO if well else logging.ERROR, "%s", state)
                notify(f"STATUS={state}")
            rest = max(0.0, every_seconds - (time.monotonic() - begun))

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    return thread
