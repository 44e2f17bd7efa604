"""Who may call what on the metrics port of a role or a coordinator: one function decides (docs/control.md). Pure."""

import hmac
import ipaddress
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from http import HTTPStatus

from cluster.control.client import MARK_HEADER, TOKEN_HEADER
from cluster.control.messages import Request
from cluster.control.token import own_token

_OWN_PAGE = (None, "none", "same-origin")

Refusal = tuple[HTTPStatus, str]


@dataclass(frozen=True)
class Acting:
    """A request that changes something: taken from the machine itself and from the addresses `known`.

    `only` says so to others.
    """

    only: str
    known: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rules:
    """What a process knows of those who may call it.

    `names` are hosts that it answers to besides `localhost` and any address. `token()` is the cluster's token as it
    is now; None where there is none, and then the address alone decides.
    """

    names: Collection[str] = field(default_factory=lambda: (socket.gethostname(), f"{socket.gethostname()}.local"))
    token: Callable[[], str | None] = own_token

    def refusal(self, request: Request, acting: Acting | None = None) -> Refusal | None:
        """Why this request is refused; None if it may be answered.

        Reading is for all who reach the port, under any name: a Prometheus may know this machine by one that we do not,
        and a page of another site cannot see what its browser is answered. Acting is not for browsers at all.
        """
        if acting is None:
            return None
        if not may_ask(request.client, request.own, *acting.known):
            return HTTPStatus.FORBIDDEN, acting.only
        if not is_ours(request.header("Host") or "", {"localhost", *(name.lower() for name in self.names)}):
            return HTTPStatus.MISDIRECTED_REQUEST, "expected localhost, an address or this node's name as Host"
        if request.header("Origin") is not None or request.header("Sec-Fetch-Site") not in _OWN_PAGE:
            return HTTPStatus.FORBIDDEN, "this is not for the pages of a browser: expected no Origin"
        if request.header(MARK_HEADER) != "1":
            return HTTPStatus.FORBIDDEN, f"expected the header {MARK_HEADER}: 1, which no page of a browser can send"
        token = self.token()
        given = request.header(TOKEN_HEADER) or ""
        if token is not None and not hmac.compare_digest(token.encode(), given.encode(errors="replace")):
            return HTTPStatus.FORBIDDEN, f"expected the cluster's token in the header {TOKEN_HEADER}"
        return None


def is_ours(host: str, names: Collection[str]) -> bool:
    """Whether a Host header means us: an address, or one of `names`. Somebody else's DNS may point any other here."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else host
    if name.lower().rstrip(".") in names:
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def may_ask(client: str, own: str, *known: str) -> bool:
    """Whether `client`, on a connection to our address `own`, is this machine or has one of the addresses `known`."""
    asking = _plain(client)
    return asking.is_loopback or asking in map(_plain, (own, *known))


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address, an IPv4 one also where a socket for both protocols shows it as `::ffff:192.168.1.26`."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return getattr(parsed, "ipv4_mapped", None) or parsed
