"""What a program's lead and the runners on other nodes say to each other over a connection.

A frame is its length (4 bytes, big-endian), its kind (1 byte) and its content. Both ends check
lengths and contents.
"""

import json
import secrets
import socket
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

from core.control.client import proof
from core.ground.addresses import plain_address
from core.ground.files import parsed_json

HEAD = struct.Struct("!IB")
MOST_BYTES = 1 << 20
RECEIVE_BYTES = 1 << 16
SILENCE_SECONDS = 30
"""A peer that acknowledges nothing for so long is lost: a node without power closes no connection.
"""


class FrameType(IntEnum):
    """What a frame holds."""

    HELLO = 1  # of a runner: member, proof, ports
    START = 2  # of the lead: variables and arguments
    OUTPUT = 3  # bytes of the program
    USAGE = 4
    FILE = (
        5  # path of a file that the program wrote, or of one that it is to find; its bytes follow
    )
    BYTES = 6
    ENDED = 7  # the program's return code
    ASK = 8  # of the lead: a signal for the program
    BYE = 9  # of the lead: all is over
    WHOSE = (
        10  # of the lead: whose files the folder is for from now on; those of another are removed
    )
    PROVEN = 11  # of the lead, before all others: that it knows the runner's key too


class ProtocolError(Exception):
    """The other end sent what no version of this program sends."""


class Frames:
    """Frames that arrive in pieces."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        """`most_bytes` may change once the other end has proven who it is."""
        self.most_bytes = most_bytes
        self._rest = bytearray()

    def add(self, piece: bytes) -> Iterator[tuple[FrameType, bytes]]:
        """The frames that are whole now. Raises ProtocolError."""
        self._rest += piece
        while len(self._rest) >= HEAD.size:
            length, kind = HEAD.unpack_from(self._rest)
            if length > self.most_bytes or kind not in set(FrameType):
                raise ProtocolError(f"a frame of kind {kind} and {length} bytes")
            end = HEAD.size + length
            if len(self._rest) < end:
                return
            content = bytes(self._rest[HEAD.size : end])
            del self._rest[:end]
            yield FrameType(kind), content


def send(connection: socket.socket, kind: FrameType, content: bytes | dict[str, Any] = b"") -> None:
    """Send one frame whole. Raises OSError."""
    if isinstance(content, bytes):
        data = content
    else:
        data = json.dumps(content).encode()
    connection.sendall(HEAD.pack(len(data), kind) + data)


def key_of_runner(token: str, member: str) -> str:
    """Return the key of one member's runner in a job: it says nothing of another's or the token."""
    return proof(token, "key of a runner", member)


def greeting(connection: socket.socket, key: str, member: str) -> dict[str, str]:
    """Return what a runner says of itself. Its key never crosses: another may have the port.

    The proof holds from this address alone: who hears it cannot pass it on.
    """
    nonce = secrets.token_hex(16)
    address = connection.getsockname()[0]
    return {
        "member": member,
        "nonce": nonce,
        "proof": proof_of_runner(key, member, nonce, address),
    }


def proof_of_runner(key: str, member: str, nonce: str, address: str) -> str:
    """Return what a runner at `address` proves its membership with."""
    return proof(key, "runner", member, nonce, str(plain_address(address)))


def proof_of_lead(key: str, nonce: str) -> str:
    """Return what the lead answers to that nonce of the runner with this key."""
    return proof(key, "lead", nonce)


def frame_object(content: bytes) -> dict[str, Any]:
    """The object in a frame. Raises ProtocolError."""
    try:
        document = parsed_json(content)
    except ValueError:
        raise ProtocolError("a frame without JSON") from None
    if not isinstance(document, dict):
        raise ProtocolError("a frame without an object")
    return document


def whole_number(content: dict[str, Any], name: str, least: int, most: int) -> int:
    """Return one value of an object. Raises ProtocolError."""
    value = content.get(name)
    if type(value) is not int or not least <= value <= most:
        raise ProtocolError(f"{name}: {value!r:.60}")
    return value


def keep_alive(connection: socket.socket) -> None:
    """Have the kernel notice a peer that is gone without a word."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (
        (socket.TCP_KEEPIDLE, 5),
        (socket.TCP_KEEPINTVL, 5),
        (socket.TCP_KEEPCNT, 5),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, seconds)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_SECONDS * 1000)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
