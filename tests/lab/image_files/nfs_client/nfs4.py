"""As much of an NFSv4.0 client as a mounted folder needs (RFC 7530), over one TCP connection.

Reading and writing use the anonymous stateid, so the server holds nothing for this client but while
it creates a file, and a server that was restarted is simply asked again.
"""

import errno
import itertools
import json
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from errno import EIO
from pathlib import Path
from typing import Any

PORT = 2049
PROGRAM = 100003
VERSION = 4
COMPOUND = 1
ANONYMOUS = bytes(16)
FOLDER = 2
LINK_TYPE = 5

TABLES = json.loads(Path(__file__).with_suffix(".json").read_text())
"""RFC 7530. `operations`: a number, and the parts of a result as `Reader` reads them. `attributes`:
name and kind by number. `settable`: number and kind by name. `errno`: for a status that is not the
errno of the same number."""
TRY_AGAIN = {10008, 10013, 10018}  # delay, grace, resource
WHO_ARE_YOU = {10011, 10022}  # expired, stale clientid: the server has forgotten us
PARTS = {number: parts for number, *parts in TABLES["operations"].values()}
Operation = tuple[str, bytes]
"""Its name and its arguments."""

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
    number = sum(1 << bit for bit in bits)
    return struct.pack(">III", 2, number & 0xFFFFFFFF, number >> 32)


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
        number = sum(word << 32 * index for index, word in enumerate(words))
        return [bit for bit in range(number.bit_length()) if number >> bit & 1]

    def attributes(self) -> dict[str, Any]:
        rows = [TABLES["attributes"][str(bit)] for bit in self.bits()]
        values = Reader(self.opaque())
        return {name: getattr(values, kind)() for name, kind in rows}

    def stateid(self) -> bytes:
        return self.take(16)

    def verifier(self) -> bytes:
        return self.take(8)

    def change(self) -> bytes:
        return self.take(20)

    def entries(self) -> tuple[list[str], int]:
        """The names of a folder, and where the next ones begin."""
        cookie = 0
        names: list[str] = []
        while self.u32():
            cookie = self.u64()
            names.append(os.fsdecode(self.opaque()))
            self.attributes()
        return names, cookie


OF_A_FILE = bitmap(1, 4, 20, 33, 35, 36, 37, 45, 47, 52, 53)
OF_A_VOLUME = bitmap(21, 22, 23, 42, 43, 44)


def when(seconds: float) -> bytes:
    whole = int(seconds // 1)
    return U32.pack(1) + struct.pack(">qI", whole, int((seconds - whole) * 1e9))


PACK: dict[str, Callable[[Any], bytes]] = {
    "u32": U32.pack,
    "u64": U64.pack,
    "name": lambda number: text(str(number)),
    "time": when,
}


def attributes(**values: float) -> bytes:
    wanted = {}
    for name, value in values.items():
        number, kind = TABLES["settable"][name]
        wanted[number] = PACK[kind](value)
    return bitmap(*wanted) + opaque(b"".join(wanted[bit] for bit in sorted(wanted)))


def lookup(path: str) -> list[Operation]:
    """The operations that make the file at a path the current one."""
    return [("PUTROOTFH", b""), *(("LOOKUP", text(name)) for name in path.split("/") if name)]


class Client:
    """One server. `hard`: a call returns when the server has answered, however long that takes."""

    def __init__(self, server: str, *, hard: bool = True, timeout_seconds: float = 60.0) -> None:
        self.server = server
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
    ) -> list[list[Any]]:
        """The results of a compound, a list of its parts for each operation.

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
                    [*lookup(folder), ("OPEN", owner + whose + how), ("GETFH", b"")],
                    user=user,
                    group=group,
                )
                break
            except NfsError as error:
                if error.errno not in WHO_ARE_YOU:
                    raise
                self.identity = None
        (stateid, _, flags, *_), (file,) = found[-2:]
        assert isinstance(file, bytes)
        sequence = 1
        if flags & 2:
            confirmed = self.call(
                [("PUTFH", opaque(file)), ("OPEN_CONFIRM", stateid + U32.pack(sequence))], user=user
            )
            (stateid,) = confirmed[-1]
            sequence = sequence + 1
        self.call([("PUTFH", opaque(file)), ("CLOSE", U32.pack(sequence) + stateid)], user=user)
        return file

    def _introduce(self) -> None:
        callback = U32.pack(0x40000000) + text("tcp") + text("0.0.0.0.0.0") + U32.pack(0)
        ((number, confirm),) = self.call(
            [("SETCLIENTID", self.verifier + opaque(self.name) + callback)]
        )
        self.call([("SETCLIENTID_CONFIRM", U64.pack(number) + confirm)])
        self.identity = number

    def _message(self, operations: Sequence[Operation], user: int, group: int) -> bytes:
        credential = U32.pack(0) + text(socket.gethostname()) + struct.pack(">III", user, group, 0)
        parts = [
            struct.pack(
                ">IIIIII", next(self.transactions) & 0xFFFFFFFF, 0, 2, PROGRAM, VERSION, COMPOUND
            ),
            *(U32.pack(1), opaque(credential), bytes(8)),
            *(opaque(b""), U32.pack(0), U32.pack(len(operations))),
            *(U32.pack(TABLES["operations"][name][0]) + words for name, words in operations),
        ]
        return b"".join(parts)

    def _exchange(self, message: bytes) -> Reader:
        try:
            if self.connection is None:
                self.connection = socket.create_connection(
                    (self.server, PORT), self.timeout_seconds
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

    def _answers(self, reader: Reader) -> list[list[Any]]:
        reader.take(8)
        if reader.u32():
            raise NfsError(13, "the server refused the call")
        reader.u32()
        reader.opaque()
        if accepted := reader.u32():
            raise NfsError(EIO, f"the server did not understand the call ({accepted})")
        reader.u32()
        reader.opaque()
        answers = []
        for _ in range(reader.u32()):
            operation = reader.u32()
            if status := reader.u32():
                name = TABLES["errno"].get(str(status))
                number = getattr(errno, name) if name else status
                raise NfsError(number, os.strerror(number))
            answers.append([getattr(reader, part)() for part in PARTS[operation]])
        return answers
