"""The gate before a TensorFlow port closes connections of other accounts and machines unread.

A TensorFlow server executes any graph of any client, as the account that runs it. The gate accepts
each connection to the port, asks the kernel which account made it (sock_diag(7)), and hands it on
to TensorFlow only if that is our own account, root, or one of those named. TensorFlow never sees
the others.

One thread accepts for all threads of this process, TensorFlow's included. The kernel stops a thread
that calls `accept` or `accept4` and hands the call to a listener (seccomp_unotify(2), Linux 5.5).
The thread behind it makes the call itself, and the stopped thread gets its result. It needs no
privilege, and every connection passes here. The filter holds for the thread that installs it and
for every thread that descends from it, and stays for good.
"""

import ctypes
import errno
import fcntl
import logging
import os
import select
import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from core.cage.landlock import (
    ALLOW,
    ARCHITECTURE,
    CALL_NUMBER,
    JUMP_IF_EQUAL,
    LOAD,
    RETURN,
    FilterProgram,
    checked,
    install,
    libc,
    this_machine,
)
from core.ground.accounts import account_name
from core.ground.addresses import plain_address
from core.metrics.sockets import borrowed, is_listening, is_tcp
from core.server.sockets import is_elsewhere

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
                if self.account_of(accepted) != os.geteuid():
                    raise OSError(errno.EOPNOTSUPP, "the kernel does not say whose a connection is")

    def account_of(self, connection: socket.socket) -> int | None:
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
        kind, body = self._ask(ASKED.pack(version, socket.IPPROTO_TCP, 0, ALL_STATES) + sockid)
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

    def _ask(self, question: bytes) -> tuple[int, bytes]:
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


def own_accounts() -> frozenset[int]:
    """This process's account and root, which may do everything anyway.

    Raises OSError where a user namespace gives all other accounts this process's number.
    """
    account = os.geteuid()
    with open("/proc/self/uid_map", encoding="ascii") as lines:
        if account == OVERFLOW_ACCOUNT and lines.read().split() != ["0", "0", "4294967295"]:
            raise OSError(errno.EOPNOTSUPP, "in this user namespace all accounts look the same")
    return frozenset({0, account})


log = logging.getLogger("pscluster.gate")

FLAG_NEW_LISTENER = 1 << 3  # linux/seccomp.h
USER_NOTIF = 0x7FC00000
# SECCOMP_IOCTL_NOTIF_RECV and _SEND, linux/seccomp.h
RECEIVE = 0xC0502100
SEND = 0xC0182101
CONTINUE = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE: let the caller make the call itself
# seccomp_notif: of its arguments, the descriptor and the flags are half a register.
NOTIFICATION = struct.Struct("=QIIiIQi4xQQi4x16x")
RESPONSE = struct.Struct("=QqiI")


ACCEPTS = {"x86_64": (43, 288), "aarch64": (202, 242)}
"""`accept` and `accept4` of a machine, by number."""


@dataclass(frozen=True)
class AcceptCall:
    """The call of a stopped thread: arguments of `accept4`, addresses as numbers.

    `cookie` is the kernel's name for it.
    """

    cookie: int
    thread: int
    listener: int
    address: int
    length: int
    flags: int


def install_filter() -> int:
    """Have the kernel stop every `accept` of this thread and its descendants.

    Returns the descriptor of the listener. Raises OSError where the kernel refuses: it has no
    seccomp, or another program listens to our calls already.
    """
    accept, accept4 = ACCEPTS[os.uname().machine]
    program = FilterProgram.from_instructions(
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_IF_EQUAL, 0, 4, this_machine().architecture),
        (LOAD, 0, 0, CALL_NUMBER),
        (JUMP_IF_EQUAL, 1, 0, accept),
        (JUMP_IF_EQUAL, 0, 1, accept4),
        (RETURN, 0, 0, USER_NOTIF),
        (RETURN, 0, 0, ALLOW),
    )
    return install(program, FLAG_NEW_LISTENER)


class PortGate(ABC):
    """Answers the accepts that a filter stops: of one port, for own accounts alone.

    `handed_on` counts the connections that the callers got.
    """

    def __init__(self, port: int, further_accounts: Iterable[int] = ()) -> None:
        """`further_accounts` pass beside our own and root."""
        self._port = port
        self._further_accounts = frozenset(further_accounts)
        self._admitted: frozenset[int] = frozenset()
        self._accounts: PeerAccounts | None = None
        self._named: set[int | None] = set()
        self.handed_on = 0

    def open_accounts(self, accounts: PeerAccounts | None = None) -> None:
        """Ask the kernel from now on. Raises OSError where it does not say what the gate needs."""
        self._admitted = own_accounts() | self._further_accounts
        self._accounts = accounts or PeerAccounts()

    @abstractmethod
    def answer(self, notifier: int, call: AcceptCall) -> int | None:
        """Return the descriptor to hand out, or None for a call on another port.

        Raises OSError with the number to hand out.
        """

    @abstractmethod
    def take_back(self, descriptor: int) -> None:
        """Note that the caller of `accept` is gone, or was interrupted and asks again."""

    def serve(self, notifier: int, end: int | None = None) -> None:
        """Answer what the filter stops until no caller is left, or `end` can be read.

        After an error every accept waits: closed is safer than open.
        """
        accept4 = ACCEPTS[os.uname().machine][1]
        poll = select.poll()
        poll.register(notifier, select.POLLIN)
        if end is not None:
            poll.register(end, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if end in ready or ready[notifier] & (select.POLLHUP | select.POLLERR):
                return
            received = bytearray(NOTIFICATION.size)
            try:
                fcntl.ioctl(notifier, RECEIVE, received)
            except OSError as error:
                if error.errno not in (errno.EINTR, errno.ENOENT):
                    return
                continue  # the caller was killed, or interrupted
            cookie, thread, _, number, _, _, *arguments = NOTIFICATION.unpack(received)
            if number != accept4:
                arguments[3] = 0
            self._respond(notifier, AcceptCall(cookie, thread, *arguments))

    def _respond(self, notifier: int, call: AcceptCall) -> None:
        problem = 0
        descriptor = None
        try:
            descriptor = self.answer(notifier, call)
        except OSError as error:
            problem = -(error.errno or errno.ECONNABORTED)
        flags = 0
        if descriptor is None and not problem:
            flags = CONTINUE
        response = RESPONSE.pack(call.cookie, descriptor or 0, problem, flags)
        try:
            fcntl.ioctl(notifier, SEND, response)
        except OSError:
            if descriptor is not None:
                self.take_back(descriptor)

    def guards(self, listener: socket.socket) -> bool:
        """Return whether the socket listens on the port of this gate."""
        listens = is_tcp(listener) and is_listening(listener)
        return listens and listener.getsockname()[1] == self._port

    def admit(self, listener: socket.socket, accept: Callable[[], socket.socket]) -> socket.socket:
        """Return the next connection of an account that may connect.

        Raises OSError of `accept`, BlockingIOError where none waits.
        """
        if os.get_blocking(listener.fileno()):  # it would block the gate for all
            raise OSError(errno.EOPNOTSUPP, "a blocking accept")  # gRPC never does this
        assert self._accounts is not None
        # One call of the stopped thread goes through all that wait before its own connection.
        while True:
            connection = accept()
            try:
                uid = self._accounts.account_of(connection)
            except OSError:
                uid = None
            if uid in self._admitted:
                self.handed_on += 1
                return connection
            self._tell(uid, connection)
            connection.close()

    def _tell(self, uid: int | None, connection: socket.socket) -> None:
        if uid in self._named:
            return
        if uid is None and not is_elsewhere(connection):
            return  # a probe of this machine that hung up before it was looked at
        self._named.add(uid)
        if uid is None:
            peer = "another machine"
        else:
            peer = f"account {account_name(uid)}"
        log.warning(
            "port %d: a connection of %s was closed unread, as further ones will be",
            self._port,
            peer,
        )


class Gate(PortGate):
    """The gate of one port of this process."""

    def __init__(
        self, port: int, further_accounts: Iterable[int] = (), accounts: PeerAccounts | None = None
    ) -> None:
        """Make it in the thread that starts the server, before it does.

        It answers every `accept` of this thread and all that it starts later, for good. A process
        that may open no port of its choice any more brings the `accounts` that it made before.

        Raises OSError where this kernel allows no such gate.
        """
        super().__init__(port, further_accounts)
        self.open_accounts(accounts)
        started = threading.Event()
        notifier = -1

        def work() -> None:
            # This thread starts before the filter, so the filter does not hold for it.
            started.wait()
            if notifier >= 0:
                self.serve(notifier)

        threading.Thread(target=work, name="accept-gate", daemon=True).start()
        try:
            notifier = install_filter()
        finally:
            started.set()

    def answer(self, notifier: int, call: AcceptCall) -> int | None:
        """Accept in the place of the stopped thread."""
        if not Path(f"/proc/self/task/{call.thread}").exists():
            return None  # a child, which has our filter and its own descriptors
        with borrowed(call.listener) as listener:
            if not self.guards(listener):
                return None
            family = listener.family

            def accept() -> socket.socket:
                places = [ctypes.c_void_p(place) for place in (call.address, call.length)]
                flags = ctypes.c_int(call.flags)
                descriptor = checked(libc().accept4(call.listener, *places, flags))
                # Its kind is said, so that Python asks the kernel nothing: a flood passes here.
                return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, descriptor)

            return self.admit(listener, accept).detach()

    def take_back(self, descriptor: int) -> None:
        """Close the connection."""
        os.close(descriptor)
