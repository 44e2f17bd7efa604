"""Requests as bytes on a socket, for what no HTTP client would send."""

import json
import socket
from contextlib import suppress
from dataclasses import dataclass

LONGEST_ANSWER = 1 << 20


@dataclass(frozen=True)
class Answer:
    status: int
    headers: bytes
    body: bytes
    rest: bytes = b""
    """What came behind the answer."""

    @property
    def error(self) -> str:
        if b"content-type: application/json" not in self.headers.lower():
            return self.body.decode()  # uvicorn's own words: the bytes are no HTTP
        found: str = json.loads(self.body)["error"]
        return found


def exchange(port: int, *parts: bytes, ends: bool = False, seconds: float = 30.0) -> Answer | None:
    """Send the parts on one connection and read one answer; None where none comes.

    With `ends` the service sees that nothing more comes.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        try:
            for part in parts:
                connection.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it answered before it had everything
        if ends:
            connection.shutdown(socket.SHUT_WR)
        return read(connection)


def read(connection: socket.socket, received: bytes = b"") -> Answer | None:
    while b"\r\n\r\n" not in received:
        more = connection.recv(65_536)
        if not more:
            return None
        received += more
    head, _, body = received.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    if lengths:
        wanted = int(lengths[0].partition(b":")[2])
    else:
        wanted = LONGEST_ANSWER
    with suppress(ConnectionResetError):  # it may close with bytes unread
        while len(body) < wanted and (more := connection.recv(65_536)):
            body += more
    return Answer(int(head.split(b" ")[1]), head, body[:wanted], body[wanted:])


def head(path: str, token: str, *lines: str, method: str = "POST") -> bytes:
    written = (
        f"{method} {path} HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {token}",
        *lines,
    )
    return "".join(f"{line}\r\n" for line in written).encode() + b"\r\n"


def post(path: str, token: str, body: bytes, *lines: str) -> bytes:
    return head(path, token, f"Content-Length: {len(body)}", *lines) + body
