"""What an inventory asks the machine that reads it: its interfaces, its name, what a host name resolves to."""

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """The three questions; tests answer them without a network."""

    hostname: Callable[[], str]
    interfaces: Callable[[], Mapping[str, tuple[str, ...]]]
    resolve: Callable[[str], str | None]
    """IPv4 address of a host name, None when it has none."""


def this_machine() -> Machine:
    """The machine this process runs on."""
    return Machine(hostname=socket.gethostname, interfaces=_interfaces, resolve=_resolve)


def _interfaces() -> Mapping[str, tuple[str, ...]]:
    from cluster.inventory.interfaces import interface_addresses  # a C extension most inventories never need

    return interface_addresses()


def _resolve(name: str) -> str | None:
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError):
        return None
