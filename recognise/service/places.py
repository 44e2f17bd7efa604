"""The places of clients, fairly shared among their addresses.

Before its token a client holds no place for long: who comes later takes the place of the oldest
one, first of those from the same address. After it, the address with the most gives way.
"""

import ipaddress
from collections import Counter
from collections.abc import Callable, MutableMapping
from typing import Any

from recognise.service.limits import RequestError

MOST_UNPROVEN = 128
SHARE = 4
"""One address has at most one place in 4."""
PROVE = "prove"
"""A key of the state of a request (ASGI): called once the client has named the token."""
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


class SessionPlaces:
    """Places of sessions with the token.

    While all are held, an address with fewer gets the newest of the one with the most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[object, tuple[str, Callable[[], None]]] = {}

    def enter(self, session: object, address: str, end: Callable[[], None]) -> None:
        """Give a session a place until it leaves; `end` is called where it must give way.

        Raises RequestError.
        """
        if len(self._held) >= self._most:
            counts = Counter(of for of, _ in self._held.values())
            busiest, most = counts.most_common(1)[0]
            if counts[address] + 1 >= most:
                raise RequestError(503, f"{self._most} sessions are open already: come again later")
            newest = next(
                candidate
                for candidate in reversed(self._held)
                if self._held[candidate][0] == busiest
            )
            self._held.pop(newest)[1]()
        self._held[session] = (address, end)

    def leave(self, session: object) -> None:
        """Free its place, unless it gave way."""
        self._held.pop(session, None)


def given_way() -> RequestError:
    """Return what a session hears that gave way."""
    return RequestError(
        503, "another address has fewer sessions and got this one's place: come again later"
    )


def address_of(scope: MutableMapping[str, Any]) -> str:
    """Return whose share a request or session is of: its client's address or, of IPv6, network."""
    client = scope.get("client")
    return _network(client[0]) if client else ""


def prove(scope: MutableMapping[str, Any]) -> None:
    """Count the connection of this request (ASGI) among those of clients with the token."""
    callback = scope.get("state", {}).get(PROVE)
    if callback is not None:
        callback()


def _network(address: str) -> str:
    try:
        client_address = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(client_address, ipaddress.IPv4Address):
        return address
    if client_address.ipv4_mapped is not None:  # a client of IPv4 at a socket of both
        return str(client_address.ipv4_mapped)
    return str(ipaddress.ip_network((int(client_address), _NETWORK_BITS), strict=False))
