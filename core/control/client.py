"""The clients of the cluster's ports: HTTP, and a supervisor's lines of JSON over its unix socket.

An answer comes within a total deadline and is of a bounded size, or there is one error. The module
imports the standard library alone: `fab` also sends its source to nodes, whose own Python runs it
(`program`).
"""

from __future__ import annotations

import hmac
import http.client
import json
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BufferedReader, BytesIO, RawIOBase
from pathlib import Path
from typing import Any

MOST_HEAD_BYTES = 16_384
MOST_BODY_BYTES = 1_048_576
"""A role exports some 10 KB, a coordinator of 128 workers 350 KB (`cluster.jobs.job_metrics`)."""
MARK_HEADER = "X-PSCluster-Request"
"""Header of every request that changes something. A page of another site cannot send it without
permission."""
NONCE_HEADER = "X-PSCluster-Nonce"
CHALLENGE_HEADER = "X-PSCluster-Challenge"
PROOF_HEADER = "X-PSCluster-Proof"
"""Header in which both ends prove that they know a key, which never crosses (docs/security.md)."""
_END_OF_HEAD = b"\r\n\r\n"


class NoAnswerError(OSError):
    """No usable answer came; says what was asked, and why. `refused`: no process listens there."""

    def __init__(self, message: str, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(frozen=True)
class Answer:
    """An answer of any status. Names of `headers` are in lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The body as text; bytes that are not UTF-8 are replaced."""
        return self.body.decode(errors="replace")


def proof(key: str, *fields: str) -> str:
    """Return what only a process that knows `key` can say about `fields`."""
    return hmac.new(key.encode(), "\n".join(fields).encode(errors="replace"), "sha256").hexdigest()


def same(received: str, expected: str) -> bool:
    """Return whether two proofs are equal, in a time that says nothing about them."""
    return hmac.compare_digest(received.encode(errors="replace"), expected.encode(errors="replace"))


def key_of(token: str | None, name: str) -> str | None:
    """Return the key of the process `name`, such as `worker:1`, in the cluster with this token.

    A process knows its own, which says nothing about the others' or the token.
    """
    if token is None:
        return None
    return proof(token, "key", name)


def ask(
    address: str,
    method: str,
    target: str,
    *,
    deadline_seconds: float,
    key: str | None = None,
    most_bytes: int = MOST_BODY_BYTES,
) -> Answer:
    """The answer of `address`, an IP address and a port, to one request.

    Connecting, sending and receiving together take at most `deadline_seconds`; the body has at most
    `most_bytes`. Follows no redirect, uses no proxy and looks up no name. `key` is that of the
    process which is expected there: a request that changes something is proven by it, after the
    process has proven that it knows it too. Raises NoAnswerError.
    """
    end = time.monotonic() + deadline_seconds
    what = f"{method} http://{address}{target}"
    try:
        if not target.isprintable() or " " in target:
            raise ValueError("expected a path without spaces and control characters")
        if method != "POST":
            return _exchange(address, method, target, {}, end, most_bytes)
        marks = {MARK_HEADER: "1"}
        nonce = secrets.token_hex(16)
        if key is not None:
            marks[NONCE_HEADER] = nonce
        answer = _exchange(address, method, target, marks, end, most_bytes)
        challenge = answer.headers.get(CHALLENGE_HEADER.lower())
        if key is None or challenge is None:
            return answer
        if not same(
            answer.headers.get(PROOF_HEADER.lower(), ""), proof(key, "server", nonce, challenge)
        ):
            raise ValueError("the process there does not know the expected key; it got no secret")
        marks = {
            MARK_HEADER: "1",
            CHALLENGE_HEADER: challenge,
            PROOF_HEADER: proof(key, "client", challenge, method, target),
        }
        return _exchange(address, method, target, marks, end, most_bytes)
    except TimeoutError:
        raise NoAnswerError(
            f"{what}: expected the whole answer within {deadline_seconds:g} s"
        ) from None
    except (OSError, http.client.HTTPException, ValueError) as problem:
        reason = str(problem) or type(problem).__name__
        raise NoAnswerError(
            f"{what}: {reason}", isinstance(problem, ConnectionRefusedError)
        ) from None


def _exchange(
    address: str, method: str, target: str, marks: Mapping[str, str], end: float, most_bytes: int
) -> Answer:
    with _connected(address, end) as connection:
        lines = [f"{method} {target} HTTP/1.0", f"Host: {address}", "Connection: close"]
        if method == "POST":
            lines.append("Content-Length: 0")
        lines += [f"{name}: {value}" for name, value in marks.items()]
        connection.settimeout(_seconds_until(end))
        connection.sendall(
            "\r\n".join(lines).encode("ascii") + _END_OF_HEAD
        )  # its timeout is that of all of it
        return _answer(BufferedReader(Received(connection, end)), most_bytes)


def _connected(address: str, end: float) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    # Numeric: nothing bounds the time to look up a name.
    family, kind, protocol, _, where = socket.getaddrinfo(
        host, int(port), type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )[0]
    connection = socket.socket(family, kind, protocol)
    try:
        connection.settimeout(_seconds_until(end))
        connection.connect(where)
    except BaseException:
        connection.close()
        raise
    return connection


def _seconds_until(end: float) -> float:
    remaining_seconds = end - time.monotonic()
    if remaining_seconds <= 0:
        raise TimeoutError
    return remaining_seconds


class Received(RawIOBase):
    """What a connection receives until `end`, in the time of `time.monotonic`."""

    def __init__(self, connection: socket.socket, end: float) -> None:
        self._connection = connection
        self.end = end

    def readable(self) -> bool:
        """Return true, as `BufferedReader` asks."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Receive some bytes. Raises TimeoutError and other OSErrors."""
        self._connection.settimeout(_seconds_until(self.end))
        return self._connection.recv_into(buffer)


class _Head:
    """The head of an answer, for http.client to read."""

    def __init__(self, head: bytes) -> None:
        self._head = head

    def makefile(self, _mode: str) -> BytesIO:
        return BytesIO(self._head)


def _answer(received: BufferedReader, most_bytes: int) -> Answer:
    head = b""
    while not head.endswith(_END_OF_HEAD):
        line = received.readline(MOST_HEAD_BYTES)
        head += line
        if len(head) > MOST_HEAD_BYTES:
            raise ValueError(f"expected headers of at most {MOST_HEAD_BYTES} bytes, got more")
        if not line:
            raise ValueError(
                f"the connection ended after {len(head)} bytes, before the end of the headers"
            )
    parsed = http.client.HTTPResponse(_Head(head))  # type: ignore[arg-type]  # reads alone
    parsed.begin()  # at most 100 headers
    if parsed.chunked or parsed.status < 200:
        raise ValueError("expected an answer in one piece, as HTTP/1.0 has it")
    body_bytes = parsed.length
    too_long = body_bytes is not None and body_bytes > most_bytes
    if too_long:
        body = b""
    else:
        body = received.read(most_bytes + 1 if body_bytes is None else body_bytes)
    if too_long or len(body) > most_bytes:
        raise ValueError(f"expected an answer of at most {most_bytes} bytes, got more")
    if body_bytes is not None and len(body) < body_bytes:
        raise ValueError(f"the connection ended after {len(body)} of {body_bytes} bytes")
    return Answer(parsed.status, body, {name.lower(): value for name, value in parsed.getheaders()})


def program(main: str) -> bytes:
    """Return a program for a node's own Python.

    It is this module, then `main`, which calls `ask` and reads `sys.argv`.
    """
    return Path(__file__).read_bytes() + f"\n\n{main}".encode()


MOST_LINE_BYTES = 1_048_576
"""A status of 136 roles is some 40 KB."""


class SupervisorConnection:
    """A connection whose every step has the same deadline. Use as a context manager."""

    def __init__(self, path: Path, deadline_seconds: float) -> None:
        """Connect. Raises OSError."""
        self._deadline_seconds = deadline_seconds
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(deadline_seconds)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._received = Received(self._socket, 0.0)
        self._lines = BufferedReader(self._received)

    def __enter__(self) -> SupervisorConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, verb: str, **request: Any) -> None:
        """Send one request. Raises OSError."""
        self._socket.settimeout(self._deadline_seconds)
        self._socket.sendall(json.dumps({"verb": verb, **request}).encode() + b"\n")

    def read_line(self) -> bytes:
        """The next line with its end; empty at the end of the connection.

        Raises TimeoutError and other OSErrors.
        """
        self._received.end = time.monotonic() + self._deadline_seconds
        line = self._lines.readline(MOST_LINE_BYTES + 1)
        if len(line) > MOST_LINE_BYTES:
            raise OSError(f"a line of more than {MOST_LINE_BYTES} bytes")
        if line.endswith(b"\n"):
            return line
        return b""


def ask_supervisor(
    path: Path, deadline_seconds: float, verb: str, **request: str
) -> dict[str, Any]:
    """The supervisor's reply to one request.

    Raises OSError, and ValueError for a reply that is no JSON object.
    """
    from core.ground.files import parsed_json  # a node's own Python has no such package

    with SupervisorConnection(path, deadline_seconds) as connection:
        connection.send(verb, **request)
        reply = parsed_json(connection.read_line())
    if not isinstance(reply, dict):
        raise ValueError(f"expected an object, got {str(reply)[:80]!r}")
    return reply
