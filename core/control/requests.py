"""A request, who may call what on a port of the cluster, and the reply. Pure.

`Rules.refusal` decides it all (docs/security.md). A caller proves that it knows this process's key
over a number that is used once.
"""

import ipaddress
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BytesIO

from core.control.client import (
    CHALLENGE_HEADER,
    MARK_HEADER,
    NONCE_HEADER,
    PROOF_HEADER,
    proof,
    same,
)
from core.control.own_state import coordinator_key
from core.ground.addresses import plain_address

MOST_HEAD_BYTES = 16_384
MOST_BODY_BYTES = 65_536
END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True)
class Request:
    """The head of a request.

    `target` is the path with its query; `client` and `local_address` are addresses without ports.
    """

    method: str
    target: str
    headers: Message
    client: str
    local_address: str

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    def header(self, name: str) -> str | None:
        """The value of a header; None without it, and `""` where it comes twice."""
        values = self.headers.get_all(name) or []
        if not values:
            return None
        if len(values) == 1:
            return str(values[0]).strip()
        return ""

    @property
    def body_bytes(self) -> int | None:
        """The length of the body; None where no valid Content-Length gives it."""
        length = self.header("Content-Length")
        if self.header("Transfer-Encoding") is not None:
            return None
        if length is None:
            return 0
        if length.isascii() and length.isdecimal() and len(length) <= 9:
            return int(length)
        return None


@dataclass(frozen=True)
class Reply:
    """A reply; the server calls `then` once it has sent all of it."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    then: Callable[[], None] | None = None
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def words(cls, status: int, message: str, then: Callable[[], None] | None = None) -> "Reply":
        """A reply of one line of text."""
        return cls(status, f"{message}\n".encode(), then=then)

    def encoded(self, *headers: tuple[str, str]) -> bytes:
        """The bytes on the wire. The connection ends with them."""
        lines = [
            f"HTTP/1.0 {self.status} {HTTPStatus(self.status).phrase}",
            "Server: pscluster",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
            "Connection: close",
            *(f"{name}: {value}" for name, value in (*self.headers, *headers)),
        ]
        return "\r\n".join(lines).encode("latin-1") + END_OF_HEAD + self.body


class BadRequestError(Exception):
    """The head of a request is invalid; `reply` says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.reply = Reply.words(status, message)


def parse(head: bytes, client: str, local_address: str) -> Request:
    """The request with this head, the empty line included. Raises BadRequestError."""
    parsed = _Head(head)
    if not parsed.whole:
        raise BadRequestError(parsed.status, parsed.message)
    return Request(parsed.command, parsed.path, parsed.headers, client, local_address)


class _Head(BaseHTTPRequestHandler):
    """The standard library's parser, without its sockets."""

    def __init__(self, head: bytes) -> None:
        self.status = int(HTTPStatus.BAD_REQUEST)
        self.message = "expected a request of HTTP"
        self.close_connection = True
        self.rfile = BytesIO(head)
        self.raw_requestline = self.rfile.readline()
        self.whole = self.parse_request()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self.status = int(code)
        self.message = f"expected a request of HTTP: {message or explain or 'this is none'}"


NONCE = re.compile(r"[0-9a-f]{32,64}")
VALID_SECONDS = 30.0
"""Time from the challenge to the request that answers it."""


class Challenges:
    """Issues challenges and accepts each of them once.

    It keeps nothing of a challenge before a caller has answered it, so that asking for many costs
    no memory. Any thread may call it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._secret = secrets.token_hex(32)
        self._spent: dict[str, float] = {}
        self._lock = threading.Lock()

    def issue(self) -> str:
        """Return a challenge that no process issued before."""
        issued = f"{self._clock():.3f}-{secrets.token_hex(16)}"
        return f"{issued}-{proof(self._secret, issued)}"

    def is_open(self, challenge: str) -> bool:
        """Return whether this process issued it a short while ago and no request has spent it."""
        issued, _, mark = challenge.rpartition("-")
        if not same(mark, proof(self._secret, issued)):
            return False
        age = self._clock() - float(issued.partition("-")[0])
        return age <= VALID_SECONDS and challenge not in self._spent

    def spend(self, challenge: str) -> bool:
        """Accept a challenge that is open, and never again; return whether it was."""
        now = self._clock()
        with self._lock:
            if not self.is_open(challenge):
                return False
            self._spent = {
                spent: since for spent, since in self._spent.items() if now - since <= VALID_SECONDS
            }
            self._spent[challenge] = now
        return True


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
        return same(received, expected) and self.challenges.spend(challenge)

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
