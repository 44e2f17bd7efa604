"""A request, and the reply to it. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BytesIO

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
