"""The gate before a program's TensorFlow port, kept by the process that runs the program.

`core.server.gate` answers the accepts of its own process with a thread of Python. A person's
program may hold Python's lock while it waits for its peers: with `MultiWorkerMirroredStrategy` such
a thread hung for good (measured). Here the filter is put on the program before its first
instruction, and the kernel asks this process about each `accept` of it and of its children
(seccomp_unotify(2), Linux 5.9). This process accepts on a copy of the listening socket, looks at
the account behind the connection, and puts the connection into the program.
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
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from core.cage.landlock import descriptor_of, libc
from core.ground.accounts import account_name
from core.metrics.sockets import is_listening, is_tcp
from core.server.gate import (
    ACCEPTS,
    CONTINUE,
    NOTIFICATION,
    RECEIVE,
    RESPONSE,
    SEND,
    Numbers,
    install_filter,
    own_accounts,
    peer_account,
)
from core.server.sockets import is_elsewhere

log = logging.getLogger("pscluster.gate")

# SECCOMP_IOCTL_NOTIF_ID_VALID and _ADDFD, linux/seccomp.h
VALID = 0x40082102
ADD_DESCRIPTOR = 0x40182103
ADDED = struct.Struct("=QIIII")  # seccomp_notif_addfd
LENGTH = struct.Struct("=I")
LONGEST_ADDRESS_BYTES = 128  # struct sockaddr_storage


class GateKeeper:
    """The gate of one port of one program.

    Make it before the program; `close` it after the program's end.
    """

    def __init__(self, port: int, other_accounts: Collection[int] = ()) -> None:
        """`other_accounts`: accounts that may connect beside this one and root."""
        self._port = port
        self._other_accounts = frozenset(other_accounts)
        self._numbers = _numbers()
        self._keeper_socket, self._program_socket = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_STREAM
        )
        self._admitted: frozenset[int] = frozenset()
        self._listener = -1
        self._named: set[int | None] = set()
        self._warned = False
        self._thread: threading.Thread | None = None
        self._end, self._wake = os.pipe()

    def before_exec(self) -> Callable[[], None]:
        """Return what the program's process calls before exec: it puts the filter on itself.

        It sends us the filter's descriptor.
        """
        numbers = self._numbers
        program_socket = self._program_socket

        def put_up() -> None:
            # A kernel without such filters: the program runs anyway, and we say that it has no
            # gate.
            with suppress(OSError):
                if numbers is not None:
                    socket.send_fds(program_socket, [b"+"], [install_filter(numbers)])
            with suppress(OSError):
                program_socket.send(b".")

        return put_up

    def begin(self) -> None:
        """Serve from now on, once the program's process is there."""
        self._program_socket.close()
        problem = (
            "this kernel has no such filters, or something else listens to the program's calls"
            " already"
        )
        try:
            _, descriptors, _, _ = socket.recv_fds(self._keeper_socket, 1, 1)
            self._admitted = own_accounts() | self._other_accounts
        except OSError as error:
            descriptors = []
            problem = error.strerror or problem
        if not descriptors:
            self._warn(problem)
            return
        self._listener = descriptors[0]
        self._thread = threading.Thread(target=self._serve, name="gate", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Serve no longer. The program has ended."""
        os.write(self._wake, b".")
        if self._thread is not None:
            self._thread.join()
        for descriptor in (self._listener, self._end, self._wake):
            if descriptor >= 0:
                os.close(descriptor)
        self._keeper_socket.close()
        self._program_socket.close()

    def _warn(self, problem: str) -> None:
        self._warned = True
        log.error(
            "port %d of the program has no gate: %s; any account of this machine, and any machine"
            " that reaches it, can run code as %s through it",
            self._port,
            problem,
            account_name(os.geteuid()),
        )

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._end, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self._end in ready or ready.get(self._listener, 0) & (
                select.POLLHUP | select.POLLERR
            ):
                return
            received = bytearray(NOTIFICATION.size)
            try:
                fcntl.ioctl(self._listener, RECEIVE, received)
            except OSError as error:
                if error.errno in (
                    errno.EINTR,
                    errno.ENOENT,
                ):  # the caller was killed, or interrupted
                    continue
                return
            cookie, thread, _, number, _, _, *arguments = NOTIFICATION.unpack(received)
            self._answer(cookie, thread, number, arguments)

    def _answer(self, cookie: int, thread: int, number: int, arguments: list[int]) -> None:
        value = 0
        problem = 0
        flags = CONTINUE
        accepted: socket.socket | None = None
        try:
            with _listener_of(self._listener, cookie, thread, arguments[0]) as listener:
                if (
                    is_tcp(listener)
                    and is_listening(listener)
                    and listener.getsockname()[1] == self._port
                ):
                    assert self._numbers is not None
                    if number == self._numbers.accept4:
                        accept_flags = arguments[3]
                    else:
                        accept_flags = 0
                    accepted = self._admit(listener, accept_flags)
                    _tell_address(thread, accepted, arguments[1], arguments[2])
                    value = _put_into(
                        self._listener, cookie, accepted, accept_flags & socket.SOCK_CLOEXEC
                    )
                    flags = 0
        except _NotOursError as error:
            if not self._warned:
                self._warn(str(error))
        except OSError as error:
            problem = -(error.errno or errno.ECONNABORTED)
            flags = 0
        finally:
            if accepted is not None:
                accepted.close()
        with suppress(OSError):  # the caller is gone
            fcntl.ioctl(self._listener, SEND, RESPONSE.pack(cookie, value, problem, flags))

    def _admit(self, listener: socket.socket, flags: int) -> socket.socket:
        """The next connection of an account that may. Raises BlockingIOError where none waits."""
        if os.get_blocking(
            listener.fileno()
        ):  # it would block the gate for all; gRPC never does this
            raise OSError(errno.EOPNOTSUPP, "a blocking accept")
        while True:
            connection, _ = listener.accept()
            try:
                uid = peer_account(connection)
            except OSError:
                uid = None
            if uid in self._admitted:
                os.set_blocking(connection.fileno(), not flags & socket.SOCK_NONBLOCK)
                return connection
            elsewhere = is_elsewhere(connection)
            connection.close()
            if (
                uid is None and not elsewhere
            ):  # one of this machine that hung up before it was looked at
                continue
            if uid not in self._named:
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


class _NotOursError(Exception):
    """The program's descriptors cannot be looked at; the message says why."""


def _numbers() -> Numbers | None:
    return ACCEPTS.get(os.uname().machine)


def _listener_of(notifier: int, cookie: int, thread: int, descriptor: int) -> socket.socket:
    """A copy of the caller's socket.

    Raises OSError where it is none, _NotOursError where we may not have it.
    """
    handle = -1
    try:
        leader = _leader(thread)
        handle = os.pidfd_open(leader)
        fcntl.ioctl(
            notifier, VALID, struct.pack("=Q", cookie)
        )  # after: the number may be another process's by now
        try:
            copy = descriptor_of(handle, descriptor & 0xFFFFFFFF)
        except OSError as problem:
            if problem.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
                raise _NotOursError(
                    f"its sockets cannot be looked at ({problem.strerror})"
                ) from None
            raise
        return socket.socket(fileno=copy)
    finally:
        if handle >= 0:
            os.close(handle)


def _leader(thread: int) -> int:
    for line in Path(f"/proc/{thread}/status").read_text().splitlines():
        if line.startswith("Tgid:"):
            return int(line.split()[1])
    raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))


def _tell_address(thread: int, connection: socket.socket, address: int, length: int) -> None:
    """Write the peer's address where the caller of `accept` wants it (accept(2))."""
    if not address or not length:
        return
    raw = ctypes.create_string_buffer(LONGEST_ADDRESS_BYTES)
    size = ctypes.c_uint32(LONGEST_ADDRESS_BYTES)
    if libc().getpeername(connection.fileno(), raw, ctypes.byref(size)) < 0:
        raise OSError(errno.ECONNABORTED, os.strerror(errno.ECONNABORTED))
    with open(f"/proc/{thread}/mem", "r+b", buffering=0) as memory:
        memory.seek(length)
        (room,) = LENGTH.unpack(memory.read(LENGTH.size))
        memory.seek(address)
        memory.write(raw.raw[: min(room, size.value)])
        memory.seek(length)
        memory.write(LENGTH.pack(size.value))


def _put_into(notifier: int, cookie: int, connection: socket.socket, close_on_exec: int) -> int:
    """Give the connection to the caller; its number there."""
    if close_on_exec:
        flags = os.O_CLOEXEC
    else:
        flags = 0
    added = bytearray(ADDED.pack(cookie, 0, connection.fileno(), 0, flags))
    # Of bytes that it may change ioctl returns the result of the call itself.
    return int(fcntl.ioctl(notifier, ADD_DESCRIPTOR, added))
