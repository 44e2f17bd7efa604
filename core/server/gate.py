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
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from core.cage.kernel import (
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
from core.metrics.sockets import borrowed, is_listening, is_tcp
from core.server.peer_accounts import PeerAccounts, own_accounts
from core.server.sockets import is_elsewhere

log = logging.getLogger("pscluster.gate")

FLAG_NEW_LISTENER = 1 << 3  # linux/seccomp.h
USER_NOTIF = 0x7FC00000
# SECCOMP_IOCTL_NOTIF_RECV and _SEND, linux/seccomp.h
RECEIVE = 0xC0502100
SEND = 0xC0182101
CONTINUE = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE: let the caller make the call itself
NOTIFICATION = struct.Struct("=QIIiIQ6Q")
RESPONSE = struct.Struct("=QqiI")


@dataclass(frozen=True)
class Numbers:
    """`accept` and `accept4` of a machine, by number."""

    accept: int
    accept4: int


ACCEPTS = {"x86_64": Numbers(43, 288), "aarch64": Numbers(202, 242)}


@dataclass(frozen=True)
class AcceptCall:
    """The call of a stopped thread: arguments of `accept4`, addresses as numbers."""

    listener: int
    address: int
    length: int
    flags: int

    def make(self) -> int:
        """Accept a connection for the caller; returns its descriptor.

        Raises OSError, EAGAIN where none waits.
        """
        return checked(
            libc().accept4(
                self.listener,
                ctypes.c_void_p(self.address),
                ctypes.c_void_p(self.length),
                ctypes.c_int(self.flags),
            )
        )


Answer = Callable[[AcceptCall], int | None]
"""The descriptor to hand out, or None for a call on another port. Raises OSError with the number to
hand out."""


def answer_accepts(answer: Answer) -> None:
    """Have `answer` answer every `accept` of this thread and all that it starts later, for good.

    Raises OSError where the kernel refuses: it has no seccomp, or another program listens to our
    calls already.
    """
    this_machine()
    numbers = ACCEPTS[os.uname().machine]
    started = threading.Event()
    listener = -1

    def work() -> None:
        # This thread starts before the filter, so the filter does not hold for it.
        started.wait()
        if listener >= 0:
            _serve(listener, numbers, answer)

    threading.Thread(target=work, name="accept-gate", daemon=True).start()
    try:
        listener = install_filter(numbers)
    finally:
        started.set()


def install_filter(numbers: Numbers) -> int:
    """Have the kernel stop every `accept` of this thread and its descendants.

    Returns the descriptor of the listener.

    Raises OSError where the kernel refuses.
    """
    program = FilterProgram.of(
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_IF_EQUAL, 0, 4, this_machine().architecture),
        (LOAD, 0, 0, CALL_NUMBER),
        (JUMP_IF_EQUAL, 1, 0, numbers.accept),
        (JUMP_IF_EQUAL, 0, 1, numbers.accept4),
        (RETURN, 0, 0, USER_NOTIF),
        (RETURN, 0, 0, ALLOW),
    )
    return install(program, FLAG_NEW_LISTENER)


def _serve(listener: int, numbers: Numbers, answer: Answer) -> None:
    library = libc()
    while True:
        received = ctypes.create_string_buffer(NOTIFICATION.size)
        if library.ioctl(listener, ctypes.c_ulong(RECEIVE), received) < 0:
            if ctypes.get_errno() in (
                errno.EINTR,
                errno.ENOENT,
            ):  # the caller was killed, or interrupted
                continue
            return  # from now on every accept waits: closed is safer than open
        cookie, thread, _, number, _, _, *arguments = NOTIFICATION.unpack(received.raw)
        value = 0
        problem = 0
        flags = CONTINUE
        if Path(
            f"/proc/self/task/{thread}"
        ).exists():  # not a child, which has our filter and its own descriptors
            if number == numbers.accept4:
                fourth = arguments[3]
            else:
                fourth = 0
            call = AcceptCall(*(_int(arguments[0]), *arguments[1:3], _int(fourth)))
            try:
                descriptor = answer(call)
                if descriptor is not None:
                    value = descriptor
                    flags = 0
            except OSError as error:
                problem = -(error.errno or errno.ECONNABORTED)
                flags = 0
        response = ctypes.create_string_buffer(
            RESPONSE.pack(cookie, value, problem, flags), RESPONSE.size
        )
        if (
            library.ioctl(listener, ctypes.c_ulong(SEND), response) < 0
            and not flags
            and not problem
        ):
            os.close(value)  # the caller was interrupted and asks again


def _int(register: int) -> int:
    return ctypes.c_int(register & 0xFFFFFFFF).value


class Gate:
    """The gate of one port of this process.

    `handed_on` counts the connections that TensorFlow got.
    """

    def __init__(
        self, port: int, further_accounts: Iterable[int] = (), accounts: PeerAccounts | None = None
    ) -> None:
        """Make it in the thread that starts the server, before it does.

        `further_accounts` pass as well. A process that may open no port of its choice any more
        brings the `accounts` that it made before.

        Raises OSError where this kernel allows no such gate.
        """
        self._port = port
        self._admitted = own_accounts() | frozenset(further_accounts)
        self._named: set[int | None] = set()
        self.handed_on = 0
        self._accounts = accounts or PeerAccounts()
        answer_accepts(self._answer)

    def _answer(self, call: AcceptCall) -> int | None:
        with borrowed(call.listener) as listener:
            if (
                not is_tcp(listener)
                or not is_listening(listener)
                or listener.getsockname()[1] != self._port
            ):
                return None
            family = listener.family
            blocking = os.get_blocking(call.listener)
        if blocking:  # it would block the gate for all; gRPC never does this
            raise OSError(errno.EOPNOTSUPP, "a blocking accept")
        # One call of the stopped thread goes through all that wait before its own connection.
        while True:
            descriptor = call.make()
            # Its kind is said, so that Python asks the kernel nothing: a flood passes here.
            connection = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, descriptor)
            try:
                uid = self._accounts.of(connection)
            except OSError:
                uid = None
            if uid in self._admitted:
                self.handed_on += 1
                return connection.detach()
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
