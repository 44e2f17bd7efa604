"""Who may call what on a port of the cluster: `Rules.refusal` decides it all. Pure.

docs/control.md explains the rules.
"""

import ipaddress
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from http import HTTPStatus

from core.control.challenges import NONCE, Challenges
from core.control.client import (
    CHALLENGE_HEADER,
    MARK_HEADER,
    NONCE_HEADER,
    PROOF_HEADER,
    proof,
    same,
)
from core.control.messages import Reply, Request
from core.control.token import coordinator_key
from core.ground.addresses import plain_address

DRAIN = "/drain/"
RESTART = "/restart"
RUN = "/run/"
OWN_PAGE = (None, "none", "same-origin")
"""Values of Sec-Fetch-Site by which a browser says that no other site's page asks."""
OF_BROWSERS = "Accept-Language"
"""Header that every browser sends, no script of a page can leave out and no Prometheus has."""
BY_TOKEN = "token"
"""Word in the place of the coordinator's address: its pod has none before it starts."""


@dataclass(frozen=True)
class Rules:
    """What a process knows of its callers.

    `coordinator` is the address of the coordinator's node, where this process takes requests from
    it. With BY_TOKEN it takes them from every address, and the key alone decides. `names` are hosts
    that this process answers to besides `localhost` and any address. `key()` is the key of this
    process at present; None without one, and then the address alone decides.
    """

    coordinator: str | None = None
    names: Collection[str] = field(
        default_factory=lambda: (socket.gethostname(), f"{socket.gethostname()}.local")
    )
    key: Callable[[], str | None] = coordinator_key
    challenges: Challenges = field(default_factory=Challenges)

    def refusal(self, request: Request) -> Reply | None:
        """Return why this request is refused; None if it is allowed.

        Every caller that reaches the port may read, under any name: a Prometheus may know this
        machine by a name that this process does not. A browser may under a name of ours alone, and
        may change nothing: a page of any site can point its own name here (DNS rebinding).
        """
        is_ours_by_name = is_ours(
            request.header("Host") or "", {"localhost", *(name.lower() for name in self.names)}
        )
        misdirected = Reply.words(
            HTTPStatus.MISDIRECTED_REQUEST,
            "expected localhost, an address or this node's name as Host",
        )
        key = self.key()
        coordinator = () if self.coordinator is None else (self.coordinator,)
        if self.coordinator == BY_TOKEN:
            coordinator = () if key is None else (request.client,)
        allowed: tuple[str, ...]
        if request.method == "GET":
            is_safe = is_ours_by_name or request.header(OF_BROWSERS) is None
            return None if is_safe else misdirected
        elif request.path.startswith(DRAIN):
            allowed = ()
            only = "only the coordinator's node may have a worker drained"
        elif request.path == RESTART:
            allowed = coordinator
            only = "only the coordinator's node may restart this process"
        elif request.path.startswith(RUN):
            allowed = coordinator
            only = "only the coordinator's node may say which run this is"
        else:
            return Reply.words(HTTPStatus.FORBIDDEN, "no caller may do this")
        if not may_ask(request.client, request.local_address, *allowed):
            return Reply.words(HTTPStatus.FORBIDDEN, only)
        if not is_ours_by_name:
            return misdirected
        if request.header("Origin") is not None or request.header("Sec-Fetch-Site") not in OWN_PAGE:
            return Reply.words(
                HTTPStatus.FORBIDDEN,
                "this is not for the pages of a browser: expected no Origin",
            )
        if request.header(MARK_HEADER) != "1":
            return Reply.words(
                HTTPStatus.FORBIDDEN,
                f"expected the header {MARK_HEADER}: 1, which no page of a browser can send",
            )
        if key is None or self._proven(request, key):
            return None
        return self._challenged(request, key)

    def _proven(self, request: Request, key: str) -> bool:
        challenge = request.header(CHALLENGE_HEADER) or ""
        received = request.header(PROOF_HEADER) or ""
        expected = proof(key, "client", challenge, request.method, request.target)
        if not same(received, expected) or not self.challenges.is_open(challenge):
            return False
        self.challenges.spend(challenge)
        return True

    def _challenged(self, request: Request, key: str) -> Reply:
        """Return the refusal that lets a caller prove itself, after this process has."""
        nonce = request.header(NONCE_HEADER) or ""
        message = f"expected a caller that knows the cluster's token ({PROOF_HEADER})"
        refusal = Reply.words(HTTPStatus.FORBIDDEN, message)
        if not NONCE.fullmatch(nonce):
            return refusal
        challenge = self.challenges.issue()
        server_proof = proof(key, "server", nonce, challenge)
        return replace(
            refusal, headers=((CHALLENGE_HEADER, challenge), (PROOF_HEADER, server_proof))
        )


def is_ours(host: str, names: Collection[str]) -> bool:
    """Whether a Host header is an address or one of `names`.

    A foreign DNS may point any other name here.
    """
    if host.rpartition(":")[2].isdecimal() and not host.endswith("]"):
        name = host.rpartition(":")[0]
    else:
        name = host
    if name.lower().rstrip(".") in names:
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def may_ask(client: str, local_address: str, *allowed: str) -> bool:
    """Return whether `client` is this machine, at `local_address`, or is among the `allowed`."""
    asking = plain_address(client)
    return asking.is_loopback or asking in map(plain_address, (local_address, *allowed))
