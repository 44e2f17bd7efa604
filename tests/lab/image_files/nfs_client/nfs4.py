"""As much of an NFSv4.0 client as a mounted folder needs (RFC 7530), over one TCP connection.

Reading and writing use the anonymous stateid, so the server holds nothing for this client but while
it creates a file, and a server that was restarted is simply asked again.
"""

import itertools
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from errno import EDQUOT, EIO, ENAMETOOLONG, ENOTEMPTY, EOPNOTSUPP, ESTALE
from typing import Any

PORT = 2049
PROGRAM = 100003
VERSION = 4
COMPOUND = 1
ANONYMOUS = bytes(16)

# Operations, by their numbers in RFC 7530, section 16.
CLOSE = 4
COMMIT = 5
CREATE = 6
GETATTR = 9
GETFH = 10
LINK = 11
LOOKUP = 15
OPEN = 18
OPEN_CONFIRM = 20
PUTFH = 22
PUTROOTFH = 24
READ = 25
READDIR = 26
READLINK = 27
REMOVE = 28
RENAME = 29
SAVEFH = 32
SETATTR = 34
SETCLIENTID = 35
SETCLIENTID_CONFIRM = 36
WRITE = 38
FOLDER = 2
LINK_TYPE = 5

TRY_AGAIN = {10008, 10013, 10018}  # delay, grace, resource
WHO_ARE_YOU = {10011, 10022}  # expired, stale clientid: the server has forgotten us
ERRNO = {
    70: ESTALE,
    10001: ESTALE,
    10003: EIO,
    10004: EOPNOTSUPP,
    10014: ESTALE,
    63: ENAMETOOLONG,
    66: ENOTEMPTY,
    69: EDQUOT,
}
"""Where a status is not the errno of the same number."""

Operation = tuple[int, bytes]
"""Its number and its arguments."""

U32 = struct.Struct(">I")
U64 = struct.Struct(">Q")


class NfsError(OSError):
    """The server's decision, as an errno."""


class ConnectionTrouble(OSError):
    """No answer: the server may be there again later."""


def opaque(content: bytes) -> bytes:
    return U32.pack(len(content)) + content + bytes(-len(content) % 4)


def text(name: str) -> bytes:
    return opaque(os.fsencode(name))


def bitmap(*bits: int) -> bytes:
    words = [0, 0]
    for bit in bits:
        words[bit // 32] |= 1 << bit % 32
    return struct.pack(">III", 2, *words)


class Reader:
    """What the server said, read from the front."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = 0

    def take(self, length: int) -> bytes:
        self.at += length
        return self.content[self.at - length : self.at]

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "big")

    def opaque(self) -> bytes:
        length = self.u32()
        content = self.take(length)
        self.at += -length % 4
        return content

    def time(self) -> float:
        return int.from_bytes(self.take(8), "big", signed=True) + self.u32() / 1e9

    def owner(self) -> int:
        name = self.opaque()
        if name.isdigit():
            return int(name)
        return 65534

    def bits(self) -> list[int]:
        words = [self.u32() for _ in range(self.u32())]
        return [
            32 * index + bit
            for index, word in enumerate(words)
            for bit in range(32)
            if word >> bit & 1
        ]

    def attributes(self) -> dict[str, Any]:
        bits = self.bits()
        values = Reader(self.opaque())
        return {ATTRIBUTES[bit][0]: ATTRIBUTES[bit][1](values) for bit in bits}


ATTRIBUTES: dict[int, tuple[str, Callable[[Reader], float]]] = {
    1: ("type", Reader.u32),
    4: ("size", Reader.u64),
    20: ("fileid", Reader.u64),
    21: ("files_avail", Reader.u64),
    22: ("files_free", Reader.u64),
    23: ("files_total", Reader.u64),
    33: ("mode", Reader.u32),
    35: ("links", Reader.u32),
    36: ("owner", Reader.owner),
    37: ("group", Reader.owner),
    42: ("space_avail", Reader.u64),
    43: ("space_free", Reader.u64),
    44: ("space_total", Reader.u64),
    45: ("space_used", Reader.u64),
    47: ("accessed", Reader.time),
    52: ("changed", Reader.time),
    53: ("modified", Reader.time),
}
OF_A_FILE = bitmap(1, 4, 20, 33, 35, 36, 37, 45, 47, 52, 53)
OF_A_VOLUME = bitmap(21, 22, 23, 42, 43, 44)


def when(seconds: float) -> bytes:
    whole = int(seconds // 1)
    return U32.pack(1) + struct.pack(">qI", whole, int((seconds - whole) * 1e9))


SETTABLE: dict[str, tuple[int, Callable[[Any], bytes]]] = {
    "size": (4, U64.pack),
    "mode": (33, U32.pack),
    "owner": (36, lambda number: text(str(number))),
    "group": (37, lambda number: text(str(number))),
    "accessed": (48, when),
    "modified": (54, when),
}


def attributes(**values: float) -> bytes:
    wanted = {SETTABLE[name][0]: SETTABLE[name][1](value) for name, value in values.items()}
    return bitmap(*wanted) + opaque(b"".join(wanted[bit] for bit in sorted(wanted)))


def change(reader: Reader) -> bytes:
    return reader.take(20)


def opened(reader: Reader) -> tuple[bytes, int]:
    stateid = reader.take(16)
    change(reader)
    flags = reader.u32()
    reader.bits()
    reader.u32()  # no delegation: none was offered a callback
    return stateid, flags


def listed(reader: Reader) -> tuple[bytes, list[str], int, bool]:
    verifier = reader.take(8)
    cookie = 0
    names: list[str] = []
    while reader.u32():
        cookie = reader.u64()
        names.append(os.fsdecode(reader.opaque()))
        reader.attributes()
    return verifier, names, cookie, bool(reader.u32())


RESULTS: dict[int, Callable[[Reader], Any]] = {
    CLOSE: lambda reader: reader.take(16),
    COMMIT: lambda reader: reader.take(8),
    CREATE: lambda reader: (change(reader), reader.bits()),
    GETATTR: Reader.attributes,
    GETFH: Reader.opaque,
    LINK: change,
    OPEN: opened,
    OPEN_CONFIRM: lambda reader: reader.take(16),
    READ: lambda reader: (reader.u32(), reader.opaque())[1],
    READDIR: listed,
    READLINK: Reader.opaque,
    REMOVE: change,
    RENAME: lambda reader: (change(reader), change(reader)),
    SETATTR: Reader.bits,
    SETCLIENTID: lambda reader: (reader.u64(), reader.take(8)),
    WRITE: lambda reader: (reader.u32(), reader.u32(), reader.take(8)),
}


def lookup(path: str) -> list[Operation]:
    """The operations that make the file at a path the current one."""
    return [(PUTROOTFH, b""), *((LOOKUP, text(name)) for name in path.split("/") if name)]


class Client:
    """One server. `hard`: a call returns when the server has answered, however long that takes."""

    def __init__(
        self, server: str, *, port: int = PORT, hard: bool = True, timeout_seconds: float = 60.0
    ) -> None:
        self.server = server
        self.port = port
        self.hard = hard
        self.timeout_seconds = timeout_seconds
        self.connection: socket.socket | None = None
        self.transactions = itertools.count(int.from_bytes(os.urandom(3), "big"))
        self.creations = itertools.count()
        self.name = f"{socket.gethostname()}-{os.getpid()}".encode()
        self.verifier = os.urandom(8)
        self.identity: int | None = None

    def call(
        self,
        operations: Sequence[Operation],
        *,
        user: int = 0,
        group: int = 0,
        patient: bool | None = None,
    ) -> list[Any]:
        """The results of a compound, one for each operation.

        Raises:
            NfsError: The server refused an operation.
            ConnectionTrouble: It did not answer, and the client is not hard.
        """
        patient = self.hard if patient is None else patient
        pause = 0.1
        while True:
            try:
                return self._answers(self._exchange(self._message(operations, user, group)))
            except ConnectionTrouble as trouble:
                if not patient:
                    raise
                print(f"nfs: {self.server}: {trouble}; trying again", flush=True)
            except NfsError as error:
                if error.errno not in TRY_AGAIN:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def create(self, folder: str, name: str, mode: int, *, user: int, group: int) -> bytes:
        """Creates a regular file, or empties the one that is there; returns its handle."""
        owner = U32.pack(0) + struct.pack(">II", 3, 0)
        how = struct.pack(">II", 1, 0) + attributes(mode=mode, size=0) + U32.pack(0) + text(name)
        while True:
            if self.identity is None:
                self._introduce()
            whose = U64.pack(self.identity) + opaque(b"%d" % next(self.creations))
            try:
                found = self.call(
                    [*lookup(folder), (OPEN, owner + whose + how), (GETFH, b"")],
                    user=user,
                    group=group,
                )
                break
            except NfsError as error:
                if error.errno not in WHO_ARE_YOU:
                    raise
                self.identity = None
        (stateid, flags), file = found[-2:]
        assert isinstance(file, bytes)
        sequence = 1
        if flags & 2:
            confirmed = self.call(
                [(PUTFH, opaque(file)), (OPEN_CONFIRM, stateid + U32.pack(sequence))], user=user
            )
            stateid = confirmed[-1]
            sequence = sequence + 1
        self.call([(PUTFH, opaque(file)), (CLOSE, U32.pack(sequence) + stateid)], user=user)
        return file

    def _introduce(self) -> None:
        callback = U32.pack(0x40000000) + text("tcp") + text("0.0.0.0.0.0") + U32.pack(0)
        ((number, confirm),) = self.call(
            [(SETCLIENTID, self.verifier + opaque(self.name) + callback)]
        )
        self.call([(SETCLIENTID_CONFIRM, U64.pack(number) + confirm)])
        self.identity = number

    def _message(self, operations: Sequence[Operation], user: int, group: int) -> bytes:
        credential = U32.pack(0) + text(socket.gethostname()) + struct.pack(">III", user, group, 0)
        parts = [
            struct.pack(
                ">IIIIII", next(self.transactions) & 0xFFFFFFFF, 0, 2, PROGRAM, VERSION, COMPOUND
            ),
            *(U32.pack(1), opaque(credential), bytes(8)),
            *(opaque(b""), U32.pack(0), U32.pack(len(operations))),
            *(U32.pack(number) + arguments for number, arguments in operations),
        ]
        return b"".join(parts)

    def _exchange(self, message: bytes) -> Reader:
        try:
            if self.connection is None:
                self.connection = socket.create_connection(
                    (self.server, self.port), self.timeout_seconds
                )
                self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connection.sendall(U32.pack(0x80000000 | len(message)) + message)
            content = b""
            last = False
            while not last:
                mark = int.from_bytes(self._receive(4), "big")
                content = content + self._receive(mark & 0x7FFFFFFF)
                last = bool(mark >> 31)
        except OSError as error:
            if self.connection is not None:
                self.connection.close()
                self.connection = None
            raise ConnectionTrouble(error.errno or EIO, str(error)) from None
        return Reader(content)

    def _receive(self, length: int) -> bytes:
        assert self.connection is not None
        content = bytearray()
        while len(content) < length:
            if not (part := self.connection.recv(length - len(content))):
                raise OSError(EIO, "the server closed the connection")
            content += part
        return bytes(content)

    def _answers(self, reader: Reader) -> list[Any]:
        _ = reader.u32()
        _ = reader.u32()
        denied = reader.u32()
        if denied:
            raise NfsError(13, "the server refused the call")
        reader.u32()
        reader.opaque()
        if accepted := reader.u32():
            raise NfsError(EIO, f"the server did not understand the call ({accepted})")
        reader.u32()
        reader.opaque()
        answers: list[Any] = []
        for _ in range(reader.u32()):
            operation = reader.u32()
            status = reader.u32()
            if status:
                number = ERRNO.get(status, status)
                raise NfsError(
                    number, os.strerror(number) if number < 1000 else f"NFS status {number}"
                )
            answers.append(RESULTS[operation](reader) if operation in RESULTS else None)
        return answers
