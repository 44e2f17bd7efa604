"""What a program's lead and the runners on other nodes say to each other over a connection.

A frame is its length (4 bytes, big-endian), its kind (1 byte) and its content. Both ends check
lengths and contents.

Files come back within bounds, by one list for the folder that `fab` fetches and for the runs of a
sweep. All that is not on it stays on the node, code above all: only a fetched run may bring the app
that was sent with its job. Nor does a page: it is drawn here from the figures.
"""

import errno
import json
import os
import re
import secrets
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from pathlib import Path, PurePosixPath
from typing import Any

from core.control.client import proof
from core.ground.addresses import plain_address
from core.ground.files import parsed_json
from core.ground.parcel import room_on_disk

HEAD = struct.Struct("!IB")
MOST_BYTES = 1 << 20
RECEIVE_BYTES = 1 << 16
SEND_SECONDS = 10.0
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


class Channel:
    """A connection that carries frames, which arrive in pieces."""

    def __init__(self, connection: socket.socket, most_bytes: int = MOST_BYTES) -> None:
        """`most_bytes` may change once the other end has proven who it is."""
        self.socket = connection
        self.most_bytes = most_bytes
        self._rest = bytearray()
        connection.setblocking(False)

    def fileno(self) -> int:
        """Return what a selector waits for."""
        return self.socket.fileno()

    def received(self) -> Iterator[tuple[FrameType, bytes]]:
        """Yield the frames that are whole now, none where nothing waits.

        Raises ProtocolError at the connection's end and for what no version sends; OSError.
        """
        try:
            piece = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        if not piece:
            raise ProtocolError("it hung up")
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

    def send(
        self,
        kind: FrameType,
        content: bytes | dict[str, Any] = b"",
        seconds: float = SEND_SECONDS,
    ) -> None:
        """Send one frame whole, within `seconds`. Raises OSError."""
        if isinstance(content, bytes):
            data = content
        else:
            data = json.dumps(content).encode()
        self.socket.settimeout(seconds)
        try:
            self.socket.sendall(HEAD.pack(len(data), kind) + data)
        finally:
            self.socket.setblocking(False)

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


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


MOST_FILES = 10_000
MOST_FILE_BYTES = 1 << 30
"""The bytes that one process may send, or be sent."""


class FileTaker:
    """Writes the files that a worker sends below a folder of ours: plain names, within a bound."""

    def __init__(
        self,
        folder: Path,
        limit_of: Callable[[Sequence[str]], int] = lambda path_segments: MOST_FILE_BYTES,
    ) -> None:
        """`limit_of` takes the segments of a path: bytes that its file may have; 0 drops it."""
        self.folder = folder
        self._limit_of = limit_of
        self._descriptor = -1
        self._passes_by = False
        self._remaining_bytes = MOST_FILE_BYTES
        self._of_file = 0
        self._count = 0

    def begin(self, told: Mapping[str, Any]) -> None:
        """The next file.

        Raises ProtocolError for a name that leads elsewhere, or for too many files; OSError.
        """
        self.close()
        name = str(told.get("path", ""))
        try:
            os.fsencode(name)
        except UnicodeEncodeError:
            raise ProtocolError("a file's path") from None
        path_segments = PurePosixPath(name).parts
        plain = [
            part
            for part in path_segments
            if part not in ("/", "..", ".") and "\0" not in part and len(part) <= 255
        ]
        self._count += 1
        if self._count > MOST_FILES:
            self._count_again()
        if (
            not path_segments
            or len(plain) != len(path_segments)
            or len(path_segments) > 32
            or self._count > MOST_FILES
        ):
            raise ProtocolError("a file's path")
        self._of_file = self._limit_of(path_segments)
        self._passes_by = self._of_file == 0
        if self._passes_by:
            return
        path = self.folder.joinpath(*path_segments)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # of an earlier attempt
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640
        )

    def add(self, piece: bytes) -> None:
        """Bytes of the present file.

        Raises ProtocolError beyond the bound, OSError where the disk is full.
        """
        if self._passes_by:
            return
        self._remaining_bytes -= len(piece)
        self._of_file -= len(piece)
        if self._remaining_bytes < 0:
            self._count_again()
        if self._descriptor < 0 or self._remaining_bytes < 0 or self._of_file < 0:
            raise ProtocolError("bytes without a file, or too many")
        if room_on_disk(self.folder) < len(piece):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        while piece:
            piece = piece[os.write(self._descriptor, piece) :]

    def _count_again(self) -> None:
        """Count what is there: a long training sends its files again and again, and old ones go."""
        sizes = [path.lstat().st_size for path in self.folder.rglob("*") if path.is_file()]
        self._remaining_bytes = MOST_FILE_BYTES - sum(sizes)
        self._count = len(sizes)

    def close(self) -> None:
        """The file is whole."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


SentFiles = dict[str, tuple[int, int]]
"""Size and time of change (ns) of each file that was sent, by path."""


def send_files(
    channel: Channel, folder: Path, sent: SentFiles | None = None, seconds: float = SEND_SECONDS
) -> int:
    """Send the plain files of `folder`, no links; how many were too many.

    With `sent` only those that have changed since they came into it, and no hidden ones, which are
    half written. Each piece takes at most `seconds`.
    """
    count = 0
    remaining_bytes = MOST_FILE_BYTES
    left_out = 0
    for root, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(root) / name
            try:
                if (
                    path.is_symlink()
                    or not path.is_file()
                    or (sent is not None and name.startswith("."))
                ):
                    continue
                status = path.stat()
                place = str(path.relative_to(folder))
                size = status.st_size
                mark = (status.st_size, status.st_mtime_ns)
                if sent is not None and sent.get(place) == mark:
                    continue
                if count >= MOST_FILES or size > remaining_bytes:
                    left_out += 1
                    continue
                content = path.open("rb")
            except OSError:
                continue
            with content:
                count = count + 1
                remaining_bytes = remaining_bytes - size
                channel.send(FrameType.FILE, {"path": place}, seconds)
                if sent is not None:
                    sent[place] = mark
                while size > 0 and (piece := content.read(min(MOST_BYTES, size))):
                    size -= len(piece)
                    channel.send(FrameType.BYTES, piece, seconds)
    return left_out


_FILES = parsed_json(Path(__file__).with_name("returned_files.json").read_bytes())
"""Patterns of the paths of files, by what leaves them, and the size that each may have. Those of
`run` include what a person's own program wrote."""
_NAME = r"[0-9]{8}T[0-9]{6}Z-train(-[0-9]{1,3})?"


def _below(folder: str, *kinds: str) -> dict[str, int]:
    return {
        f"{folder}(?:{pattern})": _FILES["bytes"][size]
        for kind in kinds
        for pattern, size in _FILES[kind].items()
    }


_BACK = _below(f"{_NAME}/", "training")
_FETCHED = {
    **_below("", "training", "run", "app", "sweep"),
    **_below(f"runs/[0-9]+/{_NAME}/", "training", "app"),
}


def _most(kinds: Mapping[str, int], path_segments: Sequence[str]) -> int:
    path = "/".join(path_segments)
    if len(path) > 4096:
        return 0
    return next((most for kind, most in kinds.items() if re.fullmatch(kind, path)), 0)


def bytes_back(path_segments: Sequence[str]) -> int:
    """Return how long a file may be that a node of a sweep sends back, 0 for one that may not come.

    What a training leaves may, below the folder of the training, and no code.
    """
    return _most(_BACK, path_segments)


def bytes_fetched(path_segments: Sequence[str]) -> int:
    """Return how long a file of a fetched run may be, 0 for one that no run has."""
    return _most(_FETCHED, path_segments)
