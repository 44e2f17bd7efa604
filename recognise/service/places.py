"""The places of connections that have not proven yet who they are: few, and fairly shared.

A client holds no place for long that way: who comes later takes the place of the oldest one, first
of those from the same address.
"""

import ipaddress
from collections.abc import Callable, MutableMapping
from typing import Any

MOST_UNPROVEN = 128
SHARE = 4
"""One address has at most one place in 4."""
PROVE = "prove"
"""In the state of a request (ASGI): called once the client has named the token."""
_NETWORK_BITS = 64
"""A client of IPv6 has a whole network of addresses."""


class UnprovenPlaces:
    """Connections of clients that have named no token, the oldest first, within one event loop."""

    def __init__(self, most: int = MOST_UNPROVEN) -> None:
        self._most = most
        self._held: dict[object, tuple[str, Callable[[], None]]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def enter(self, connection: object, address: str, end: Callable[[], None]) -> None:
        """Give a connection a place; `end` is called where it must give way."""
        place = _network(address)
        same = [other for other, (of, _) in self._held.items() if of == place]
        oldest = None
        if len(same) >= max(1, self._most // SHARE):
            oldest = same[0]
        elif len(self._held) >= self._most:
            oldest = next(iter(self._held))
        if oldest is not None:
            self._held.pop(oldest)[1]()
        self._held[connection] = (place, end)

    def leave(self, connection: object) -> None:
        """Free its place: it is proven, or has ended."""
        self._held.pop(connection, None)

    def __contains__(self, connection: object) -> bool:
        return connection in self._held


def prove(scope: MutableMapping[str, Any]) -> None:
    """Count the connection of this request (ASGI) among those of clients with the token."""
    found = scope.get("state", {}).get(PROVE)
    if found is not None:
        found()


def _network(address: str) -> str:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    return str(ipaddress.ip_network((int(found), _NETWORK_BITS), strict=False))
