"""Who may call what on the port of a role or a coordinator: `Rules.refusal` decides it all (docs/control.md). Pure."""

import hmac
import ipaddress
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from http import HTTPStatus

from cluster.control.client import MARK_HEADER, TOKEN_HEADER
from cluster.control.messages import Request
from cluster.control.token import own_token

DRAIN, RESTART, RUN = "/drain/", "/restart", "/run/"
_OWN_PAGE = (None, "none", "same-origin")
BY_TOKEN = "token"
"""In the place of the coordinator's address: its pod has none that is known before it starts."""

Refusal = tuple[HTTPStatus, str]


@dataclass(frozen=True)
class Rules:
    """What a process knows of its callers.

    `coordinator` is the address of the coordinator's node, where this process takes requests from it. With BY_TOKEN it
    takes them from every address, and the cluster's token alone decides. `names` are hosts that this process answers to
    besides `localhost` and any address. `token()` is the cluster's token at present; None without one, and then the
    address alone decides.
    """

    coordinator: str | None = None
    names: Collection[str] = field(default_factory=lambda: (socket.gethostname(), f"{socket.gethostname()}.local"))
    token: Callable[[], str | None] = own_token

    def refusal(self, request: Request) -> Refusal | None:
        """Why this request is refused; None if it is allowed.

        Every caller that reaches the port may read, under any name: a Prometheus may know this machine by a name that
        this process does not, and a browser shows no page of another site what it read. A browser may change nothing.
        """
        token = self.token()
        coordinator = () if self.coordinator is None else (self.coordinator,)
        if self.coordinator == BY_TOKEN:
            coordinator = () if token is None else (request.client,)
        known: tuple[str, ...]
        if request.method == "GET":
            return None
        elif request.path.startswith(DRAIN):
            known, only = (), "only the coordinator's node may have a worker drained"
        elif request.path == RESTART:
            known, only = coordinator, "only the coordinator's node may restart this process"
        elif request.path.startswith(RUN):
            known, only = coordinator, "only the coordinator's node may say which run this is"
        else:
            return HTTPStatus.FORBIDDEN, "no caller may do this"
        if not may_ask(request.client, request.own, *known):
            return HTTPStatus.FORBIDDEN, only
        if not is_ours(request.header("Host") or "", {"localhost", *(name.lower() for name in self.names)}):
            return HTTPStatus.MISDIRECTED_REQUEST, "expected localhost, an address or this node's name as Host"
        if request.header("Origin") is not None or request.header("Sec-Fetch-Site") not in _OWN_PAGE:
            return HTTPStatus.FORBIDDEN, "this is not for the pages of a browser: expected no Origin"
        if request.header(MARK_HEADER) != "1":
            return HTTPStatus.FORBIDDEN, f"expected the header {MARK_HEADER}: 1, which no page of a browser can send"
        given = request.header(TOKEN_HEADER) or ""
        if token is not None and not hmac.compare_digest(token.encode(), given.encode(errors="replace")):
            return HTTPStatus.FORBIDDEN, f"expected the cluster's token in the header {TOKEN_HEADER}"
        return None


def is_ours(host: str, names: Collection[str]) -> bool:
    """Whether a Host header is an address or one of `names`. A foreign DNS may point any other name here."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else host
    if name.lower().rstrip(".") in names:
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def may_ask(client: str, own: str, *known: str) -> bool:
    """Whether `client` is this machine, whose address is `own`, or has one of the addresses `known`."""
    asking = _plain(client)
    return asking.is_loopback or asking in map(_plain, (own, *known))


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address, an IPv4 one also where a socket for both protocols shows it as `::ffff:192.168.1.26`."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return getattr(parsed, "ipv4_mapped", None) or parsed
