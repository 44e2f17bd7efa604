"""Which account made a connection to a port of this machine: the kernel says it (sock_diag(7))."""

import errno
import os
import socket
import struct

from core.ground.addresses import plain_address

# linux/sock_diag.h, linux/netlink.h
SOCK_DIAG_BY_FAMILY = 20
REQUEST = 1
ERROR = 2
NETLINK_SOCK_DIAG = 4
ESTABLISHED = 1  # net/tcp_states.h
HEADER = struct.Struct("=IHHII")  # nlmsghdr
ASKED = struct.Struct("=BBBxI")  # inet_diag_req_v2 before its sockid
PORTS = struct.Struct("!HH")
SOCKID_REST = struct.Struct("=III")
# inet_diag_msg around its sockid
FOUND = struct.Struct("=BBBB")
FOUND_REST = struct.Struct("=IIIII")
SOCKID_BYTES = 48
ANY_COOKIE = 0xFFFFFFFF
ALL_STATES = 0xFFFFFFFF
OVERFLOW_ACCOUNT = 65534
"""The kernel's number for every account that a user namespace does not map."""
LATE_ANSWERS = 8
"""Answers to earlier questions that are passed over."""


class PeerAccounts:
    """Asks the kernel over one socket, which it keeps. It belongs to one thread at a time."""

    def __init__(self) -> None:
        """Try a look-up. Raises OSError unless the kernel says whose our own connection is."""
        self._kernel = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG
        )
        self._sequence = 0
        try:
            self._try()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the socket to the kernel."""
        self._kernel.close()

    def _try(self) -> None:
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.create_connection(listener.getsockname()),
        ):
            accepted, _ = listener.accept()
            with accepted:
                if self.of(accepted) != os.geteuid():
                    raise OSError(errno.EOPNOTSUPP, "the kernel does not say whose a connection is")

    def of(self, connection: socket.socket) -> int | None:
        """Return the uid at the other end of an accepted connection.

        It is None if that end is no open socket of this machine.

        A socket that its process has closed has no account any more, and the kernel answers 0 for
        it: only a connection that is open at both ends has an answer. Raises OSError where the
        kernel does not answer such questions.
        """
        if not _is_open(connection):
            return None  # the cheap answer to those that come and go
        entry = self._look_up(connection.getpeername(), connection.getsockname())
        if entry is None:
            return None
        state, uid, inode = entry
        # Look at our end last: while it is open, no other socket can have replaced the one found.
        if state == ESTABLISHED and inode and _is_open(connection):
            return uid
        return None

    def _look_up(
        self, source: tuple[str, int], target: tuple[str, int]
    ) -> tuple[int, int, int] | None:
        """Return state, uid and inode of the socket whose own end is `source`, the other `target`.

        None where there is no such socket. Raises OSError where the kernel does not answer.
        """
        source_address = plain_address(source[0])
        sockid = (
            PORTS.pack(source[1], target[1])
            + source_address.packed.ljust(16, b"\0")
            + plain_address(target[0]).packed.ljust(16, b"\0")
            + SOCKID_REST.pack(0, ANY_COOKIE, ANY_COOKIE)
        )
        if source_address.version == 4:
            version = socket.AF_INET
        else:
            version = socket.AF_INET6
        kind, body = self._asked(ASKED.pack(version, socket.IPPROTO_TCP, 0, ALL_STATES) + sockid)
        if kind == ERROR:
            number = -struct.unpack_from("=i", body)[0]
            if number == errno.ENOENT:
                return None
            raise OSError(number, os.strerror(number))
        _, state, _, _ = FOUND.unpack_from(body)
        if body[FOUND.size :][: PORTS.size] != sockid[: PORTS.size]:
            return None  # a listener, which has no other end
        _, _, _, uid, inode = FOUND_REST.unpack_from(body, FOUND.size + SOCKID_BYTES)
        return state, uid, inode

    def _asked(self, question: bytes) -> tuple[int, bytes]:
        """Kind and body of the kernel's answer."""
        self._sequence = (self._sequence + 1) % ANY_COOKIE
        length = HEADER.size + len(question)
        self._kernel.send(
            HEADER.pack(length, SOCK_DIAG_BY_FAMILY, REQUEST, self._sequence, 0) + question
        )
        for _ in range(LATE_ANSWERS):
            answer = self._kernel.recv(4096)
            _, kind, _, sequence, _ = HEADER.unpack_from(answer)
            if sequence == self._sequence:
                return kind, answer[HEADER.size :]
        raise OSError(errno.EPROTO, "the kernel answers other questions")


def _is_open(connection: socket.socket) -> bool:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == ESTABLISHED


def peer_account(connection: socket.socket) -> int | None:
    """Answer for one connection as `PeerAccounts.of` does. Raises OSError."""
    accounts = PeerAccounts()
    try:
        return accounts.of(connection)
    finally:
        accounts.close()


def own_accounts() -> frozenset[int]:
    """This process's account and root, which may do everything anyway.

    Raises OSError where a user namespace gives all other accounts this process's number.
    """
    account = os.geteuid()
    with open("/proc/self/uid_map", encoding="ascii") as lines:
        if account == OVERFLOW_ACCOUNT and lines.read().split() != ["0", "0", "4294967295"]:
            raise OSError(errno.EOPNOTSUPP, "in this user namespace all accounts look the same")
    return frozenset({0, account})
