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
    return Machine(hostname=socket.gethostname, interfaces=interface_addresses, resolve=_resolve)


def _resolve(name: str) -> str | None:
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError):
        return None


def interface_addresses() -> dict[str, tuple[str, ...]]:
    """IPv4 addresses of every interface of this machine; none for one that is down or has no cable."""
    import netifaces  # a C extension that most inventories never need

    found: dict[str, tuple[str, ...]] = {}
    for name in netifaces.interfaces():
        try:
            entries = netifaces.ifaddresses(name).get(netifaces.AF_INET, [])
        except ValueError:  # the interface went away between the two calls
            continue
        found[name] = tuple(str(entry["addr"]) for entry in entries if "addr" in entry)
    return found
