"""Strategies of wrong frames of a live session, and what a service answers to them."""

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import SERVER, Protocol

from recognise.service.limits import StreamLimits
from tests.recognise.service.noise import anything, damaged, fields, leaf

HELLO = b'{"schema": 1}'
_READINGS = json.dumps(
    {"times": [0.0, 0.02], "acceleration": [[0.0, 0.0, 1.0]] * 2, "rotation": [[0.1, 0, 0]] * 2}
)
CLOSE = 8
LONGEST_SHORT = 65_535
LAST = b"\x81\x83" + bytes(4) + b"end"
"""A message that is none, which ends a session that has taken all others."""
ENDING = bytes(LONGEST_SHORT + 16)
"""Fills whatever length a frame announced, and is then a frame without a mask: no connection waits
for more."""


def frame(
    opcode: int,
    content: bytes,
    *,
    fin: bool = True,
    masked: bool = True,
    announced: int | None = None,
    rsv: int = 0,
) -> bytes:
    """A frame, perhaps wrong: `announced` stands for its length, `rsv` for its reserved bits."""
    size = len(content) if announced is None else announced
    if size < 126:
        length = bytes([size | 0x80 * masked])
    elif size <= LONGEST_SHORT:
        length = bytes([126 | 0x80 * masked]) + size.to_bytes(2, "big")
    else:
        length = bytes([127 | 0x80 * masked]) + size.to_bytes(8, "big")
    return (
        bytes([opcode | rsv << 4 | 0x80 * fin]) + length + (bytes(4) if masked else b"") + content
    )


def _in_parts(content: bytes, count: int, last: bool) -> bytes:
    """One message in frames; without its last one where `last` is false."""
    size = max(1, -(-len(content) // count))
    parts = [content[at : at + size] for at in range(0, len(content), size)] or [b""]
    frames = [
        frame(1 if at == 0 else 0, part, fin=at == len(parts) - 1) for at, part in enumerate(parts)
    ]
    return b"".join(frames if last else frames[:-1])


_NAMES = (
    "schema",
    "times",
    "acceleration",
    "rotation",
    "hop",
    "of",
    "votes",
    "token",
    "resume",
    "x",
)
_special = [[1e308] * 3, [[0.0, 0.0, 1.0]], [0.0], [None] * 3, 1e308, -0.0]
_texts = st.one_of(
    damaged(st.sampled_from([_READINGS.encode(), HELLO])),
    fields(_NAMES, anything(*_special)).map(lambda found: json.dumps(found).encode()),
    st.binary(max_size=40).map(lambda content: b'{"schema": 1, "x": "\xff' + content),
    st.integers(1, 40_000).map(lambda depth: b"[" * depth),
    st.integers(30_000, 60_000).map(lambda count: b'{"times": [' + b"0," * (count // 2) + b"0]}"),
)
_resumed = st.one_of(
    st.text(max_size=30),
    st.text("ABCDabcd0123+/=", max_size=200),
    st.integers(1, 60_000).map(lambda size: "A" * size),
    leaf(*_special),
).map(lambda state: json.dumps({"schema": 1, "resume": state}).encode())
_frames = st.one_of(
    _texts.map(lambda text: frame(1, text)),
    st.builds(_in_parts, _texts, st.integers(1, 1100), st.booleans()),
    st.builds(
        frame,
        st.integers(0, 15),
        st.binary(max_size=130),
        fin=st.booleans(),
        masked=st.booleans(),
        announced=st.one_of(st.none(), st.integers(0, LONGEST_SHORT)),
        rsv=st.integers(0, 7),
    ),
    st.integers(2**20 + 1, 2**64 - 1).map(lambda size: frame(1, b"", announced=size)),
    st.binary(max_size=60).map(lambda content: frame(2, content)),
    st.binary(max_size=130).map(lambda content: frame(9, content)),
    st.integers(0, 0xFFFF).map(lambda code: frame(CLOSE, code.to_bytes(2, "big"))),
    st.just(frame(1, _READINGS.encode())),
    st.binary(min_size=1, max_size=40),
)
_first = st.one_of(
    *[st.just(frame(1, HELLO))] * 3,
    _frames,
    _resumed.map(lambda text: frame(1, text)),
)


def conversations(count: int) -> st.SearchStrategy[list[bytes]]:
    """So many frames of one connection.

    The first is mostly a right one, so that the others are readings.
    """
    return st.tuples(_first, st.lists(_frames, min_size=count - 1, max_size=count - 1)).map(
        lambda parts: [parts[0], *parts[1]]
    )


def sent(frames: list[bytes]) -> tuple[list[bytes], set[int], bool]:
    """What a client sends, and how it ends by the words of the library.

    Behind the frames comes LAST and, only where a frame waits for more, ENDING. The second are the
    close codes of what is no WebSocket, no UTF-8 or too large, the third whether the client closes.
    """
    connection = Protocol(SERVER, max_size=StreamLimits().message_bytes)
    parts = []
    message = bytearray()
    codes: set[int] = set()
    for part in (b"".join([*frames, LAST]), ENDING):
        parts.append(part)
        connection.receive_data(part)
        for event in connection.events_received():
            if isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.CONT):
                if event.opcode is Opcode.TEXT:
                    message.clear()
                message += event.data
                if event.fin and message.decode(errors="ignore").encode() != message:
                    codes.add(1007)
        if connection.parser_exc is not None and connection.close_sent is not None:
            codes.add(connection.close_sent.code)
        if codes or message == b"end":
            break
    return parts, codes, connection.close_rcvd is not None


@dataclass(frozen=True)
class Answers:
    """The events of a session, and its close code; None where there is no close frame yet."""

    events: list[dict[str, Any]]
    code: int | None


def answers(content: bytes) -> Answers:
    """Return the answers among the bytes that a service sent behind its handshake."""
    events: list[dict[str, Any]] = []
    at = 0
    while at + 2 <= len(content):
        opcode = content[at] & 0x0F
        size = content[at + 1]
        at += 2
        if size >= 126:
            wide = {126: 2, 127: 8}[size]
            size = int.from_bytes(content[at : at + wide], "big")
            at += wide
        found = content[at : at + size]
        if len(found) < size:
            break
        at += size
        if opcode == CLOSE:
            return Answers(events, int.from_bytes(found[:2], "big") if found else 1005)
        if opcode == 1:
            events.append(json.loads(found))
    return Answers(events, None)
