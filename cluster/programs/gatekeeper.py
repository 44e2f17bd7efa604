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
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from typing_extensions import override

from core.cage.landlock import descriptor_of, libc
from core.ground.accounts import account_name
from core.server.gate import ACCEPTS, AcceptCall, PortGate, install_filter, log

# SECCOMP_IOCTL_NOTIF_ID_VALID and _ADDFD, linux/seccomp.h
VALID = 0x40082102
ADD_DESCRIPTOR = 0x40182103
ADDED = struct.Struct("=QIIII")  # seccomp_notif_addfd
LENGTH = struct.Struct("=I")
LONGEST_ADDRESS_BYTES = 128  # struct sockaddr_storage


class GateKeeper(PortGate):
    """The gate of one port of one program.

    Make it before the program; `close` it after the program's end.
    """

    def __init__(self, port: int, further_accounts: Iterable[int] = ()) -> None:
        super().__init__(port, further_accounts)
        self._has_filter = os.uname().machine in ACCEPTS
        self._keeper_socket, self._program_socket = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_STREAM
        )
        self._notifier = -1
        self._warned = False
        self._thread: threading.Thread | None = None
        self._end, self._wake = os.pipe()

    def before_exec(self) -> Callable[[], None]:
        """Return what the program's process calls before exec: it puts the filter on itself.

        It sends us the filter's descriptor.
        """
        has_filter = self._has_filter
        program_socket = self._program_socket

        def put_up() -> None:
            # A kernel without such filters: the program runs anyway, and we say that it has no
            # gate.
            with suppress(OSError):
                if has_filter:
                    socket.send_fds(program_socket, [b"+"], [install_filter()])
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
            self.open_accounts()
        except OSError as error:
            descriptors = []
            problem = error.strerror or problem
        if not descriptors:
            self._warn(problem)
            return
        self._notifier = descriptors[0]
        self._thread = threading.Thread(
            target=self.serve, args=(self._notifier, self._end), name="gate", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Serve no longer. The program has ended."""
        os.write(self._wake, b".")
        if self._thread is not None:
            self._thread.join()
        for descriptor in (self._notifier, self._end, self._wake):
            if descriptor >= 0:
                os.close(descriptor)
        self._keeper_socket.close()
        self._program_socket.close()
        if self._accounts is not None:
            self._accounts.close()

    def _warn(self, problem: str) -> None:
        self._warned = True
        log.error(
            "port %d of the program has no gate: %s; any account of this machine, and any machine"
            " that reaches it, can run code as %s through it",
            self._port,
            problem,
            account_name(os.geteuid()),
        )

    @override
    def answer(self, notifier: int, call: AcceptCall) -> int | None:
        try:
            copied = _listener_of(notifier, call)
        except _NotOursError as error:
            if not self._warned:
                self._warn(str(error))
            return None
        with copied as listener:
            if not self.guards(listener):
                return None
            with self.admit(listener, lambda: listener.accept()[0]) as accepted:
                os.set_blocking(accepted.fileno(), not call.flags & socket.SOCK_NONBLOCK)
                _tell_address(call, accepted)
                return _put_into(notifier, call, accepted)

    @override
    def take_back(self, descriptor: int) -> None:
        """Leave it: it is the program's."""


class _NotOursError(Exception):
    """The program's descriptors cannot be looked at; the message says why."""


def _listener_of(notifier: int, call: AcceptCall) -> socket.socket:
    """A copy of the caller's socket.

    Raises OSError where it is none, _NotOursError where we may not have it.
    """
    handle = -1
    try:
        leader = _leader(call.thread)
        handle = os.pidfd_open(leader)
        fcntl.ioctl(
            notifier, VALID, struct.pack("=Q", call.cookie)
        )  # after: the number may be another process's by now
        try:
            copy = descriptor_of(handle, call.listener)
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


def _tell_address(call: AcceptCall, connection: socket.socket) -> None:
    """Write the peer's address where the caller of `accept` wants it (accept(2))."""
    if not call.address or not call.length:
        return
    raw = ctypes.create_string_buffer(LONGEST_ADDRESS_BYTES)
    size = ctypes.c_uint32(LONGEST_ADDRESS_BYTES)
    if libc().getpeername(connection.fileno(), raw, ctypes.byref(size)) < 0:
        raise OSError(errno.ECONNABORTED, os.strerror(errno.ECONNABORTED))
    with open(f"/proc/{call.thread}/mem", "r+b", buffering=0) as memory:
        memory.seek(call.length)
        (room,) = LENGTH.unpack(memory.read(LENGTH.size))
        memory.seek(call.address)
        memory.write(raw.raw[: min(room, size.value)])
        memory.seek(call.length)
        memory.write(LENGTH.pack(size.value))


def _put_into(notifier: int, call: AcceptCall, connection: socket.socket) -> int:
    """Give the connection to the caller; its number there."""
    if call.flags & socket.SOCK_CLOEXEC:
        flags = os.O_CLOEXEC
    else:
        flags = 0
    added = bytearray(ADDED.pack(call.cookie, 0, connection.fileno(), 0, flags))
    # Of bytes that it may change ioctl returns the result of the call itself.
    return int(fcntl.ioctl(notifier, ADD_DESCRIPTOR, added))
