"""The gate before a TensorFlow port: it closes connections of other accounts and of other machines unread.

A TensorFlow server executes any graph of any client, as the account that runs it. The gate accepts each connection to
the port (`accept_calls`), asks the kernel which account made it (sock_diag(7)), and hands it on to TensorFlow only if
that is our own account, root, or one of those named. TensorFlow never sees the others.
"""

import errno
import ipaddress
import logging
import os
import socket
import struct
import threading
from collections.abc import Iterable

from cluster.metrics.sockets import borrowed, is_listening, is_tcp
from cluster.server.accept_calls import AcceptCall, answer_accepts
from cluster.server.accounts import account_name

log = logging.getLogger("pscluster.gate")

SOCK_DIAG_BY_FAMILY, REQUEST, ERROR = 20, 1, 2  # linux/sock_diag.h, linux/netlink.h
NETLINK_SOCK_DIAG = 4
ESTABLISHED = 1  # net/tcp_states.h
HEADER = struct.Struct("=IHHII")  # nlmsghdr
ASKED = struct.Struct("=BBBxI")  # inet_diag_req_v2 before its sockid
PORTS, SOCKID_REST = struct.Struct("!HH"), struct.Struct("=III")
FOUND, FOUND_REST = struct.Struct("=BBBB"), struct.Struct("=IIIII")  # inet_diag_msg around its sockid
SOCKID_BYTES = 48
ANY_COOKIE = 0xFFFFFFFF
ALL_STATES = 0xFFFFFFFF
OVERFLOW_ACCOUNT = 65534
"""The kernel's number for every account that a user namespace does not map."""


class Gate:
    """The gate of one port of this process. `handed_on` counts the connections that TensorFlow got."""

    def __init__(self, port: int, others: Iterable[int] = ()) -> None:
        """Make it in the thread that starts the server, before it does. The accounts `others` pass as well.

        Raises OSError where this kernel allows no such gate.
        """
        self._port = port
        self._admitted = own_accounts() | frozenset(others)
        self._lock = threading.Lock()
        self._named: set[int | None] = set()
        self.handed_on = 0
        _try_a_look_up()
        answer_accepts(self._answer)

    def _answer(self, call: AcceptCall) -> int | None:
        with borrowed(call.listener) as listener:
            if not is_tcp(listener) or not is_listening(listener) or listener.getsockname()[1] != self._port:
                return None
            blocking = os.get_blocking(call.listener)
        if blocking:  # it would block the gate for all; gRPC never does this
            raise OSError(errno.EOPNOTSUPP, "a blocking accept")
        while True:
            descriptor = call.make()
            try:
                uid = self._account(descriptor)
            except OSError:
                uid = None
            if uid in self._admitted:
                self.handed_on += 1
                return descriptor
            os.close(descriptor)
            self._tell(uid)

    def _account(self, descriptor: int) -> int | None:
        with borrowed(descriptor) as connection:
            return peer_account(connection)

    def _tell(self, uid: int | None) -> None:
        if uid in self._named:
            return
        self._named.add(uid)
        who = "another machine, or one that hung up at once" if uid is None else f"account {account_name(uid)}"
        log.warning("port %d: a connection of %s was closed unread, as further ones will be", self._port, who)


def _try_a_look_up() -> None:
    """Raises OSError unless the kernel knows the account of a connection of our own."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            if peer_account(accepted) != os.geteuid():
                raise OSError(errno.EOPNOTSUPP, "the kernel does not say whose a connection is")


def peer_account(connection: socket.socket) -> int | None:
    """The uid at the other end of an accepted connection; None if that end is no open socket of this machine.

    A socket that its process has closed has no account any more, and the kernel answers 0 for it: only a connection
    that is open at both ends has an answer. Raises OSError where the kernel does not answer such questions.
    """
    here, there = connection.getsockname(), connection.getpeername()
    found = _look_up(connection.family, there, here)
    if found is None:
        return None
    state, uid, inode = found
    # Look at our end last: while it is open, no other socket can have replaced the one found.
    ours = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return uid if (state, ours) == (ESTABLISHED, ESTABLISHED) and inode else None


def own_accounts() -> frozenset[int]:
    """This process's account and root, which may do everything anyway.

    Raises OSError where a user namespace gives all other accounts this process's number.
    """
    own = os.geteuid()
    with open("/proc/self/uid_map", encoding="ascii") as lines:
        if own == OVERFLOW_ACCOUNT and lines.read().split() != ["0", "0", "4294967295"]:
            raise OSError(errno.EOPNOTSUPP, "in this user namespace all accounts look the same")
    return frozenset({0, own})


def _look_up(family: int, source: tuple[str, int], target: tuple[str, int]) -> tuple[int, int, int] | None:
    """State, uid and inode of the socket that has `source` as its own end and `target` as the other."""
    sockid = (
        PORTS.pack(source[1], target[1])
        + _address(source[0]).ljust(16, b"\0")
        + _address(target[0]).ljust(16, b"\0")
        + SOCKID_REST.pack(0, ANY_COOKIE, ANY_COOKIE)
    )
    version = socket.AF_INET if len(_address(source[0])) == 4 else socket.AF_INET6
    body = ASKED.pack(version, socket.IPPROTO_TCP, 0, ALL_STATES) + sockid
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.send(HEADER.pack(HEADER.size + len(body), SOCK_DIAG_BY_FAMILY, REQUEST, 1, 0) + body)
        answer = kernel.recv(4096)
    _, kind, *_ = HEADER.unpack_from(answer)
    if kind == ERROR:
        number = -struct.unpack_from("=i", answer, HEADER.size)[0]
        if number == errno.ENOENT:
            return None
        raise OSError(number, os.strerror(number))
    _, state, _, _ = FOUND.unpack_from(answer, HEADER.size)
    if answer[HEADER.size + FOUND.size :][: PORTS.size] != sockid[: PORTS.size]:  # a listener, which has no other end
        return None
    _, _, _, uid, inode = FOUND_REST.unpack_from(answer, HEADER.size + FOUND.size + SOCKID_BYTES)
    return state, uid, inode


def _address(text: str) -> bytes:
    parsed = ipaddress.ip_address(text.partition("%")[0])
    return (getattr(parsed, "ipv4_mapped", None) or parsed).packed
