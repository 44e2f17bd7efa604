"""The places of sessions with the token, fairly shared among the addresses of their clients."""

from collections import Counter
from collections.abc import Callable, MutableMapping
from typing import Any

from core.control.door import network_of
from recognise.service.limits import RequestError


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
    if client:
        return network_of(client[0])
    return ""
