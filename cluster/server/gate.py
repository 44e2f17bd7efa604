"""The gate before a TensorFlow port: it closes connections of other accounts and of other machines unread.

A TensorFlow server executes any graph of any client, as the account that runs it. The gate accepts each connection to
the port, asks the kernel which account made it (sock_diag(7)), and hands it on to TensorFlow only if that is our own
account, root, or one of those named. TensorFlow never sees the others.

One thread accepts for all threads of this process, TensorFlow's included. The kernel stops a thread that calls `accept`
or `accept4` and hands the call to a listener (seccomp_unotify(2), Linux 5.5). The thread behind it makes the call
itself, and the stopped thread gets its result. It needs no privilege, and every connection passes here. The filter
holds for the thread that installs it and for every thread that descends from it, and stays for good.
"""

import ctypes
import errno
import logging
import os
import platform
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cluster.metrics.sockets import borrowed, is_listening, is_tcp
from cluster.server.accounts import PR_SET_NO_NEW_PRIVS, account_name
from cluster.server.sockets import plain

log = logging.getLogger("pscluster.gate")

SECCOMP_SET_MODE_FILTER = 1
FLAG_SPEC_ALLOW, FLAG_NEW_LISTENER = 1 << 2, 1 << 3  # the former: no slower speculation, which old kernels add
ALLOW, USER_NOTIF = 0x7FFF0000, 0x7FC00000
RECEIVE, SEND = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV and _SEND, linux/seccomp.h
CONTINUE = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE: let the caller make the call itself
NOTIFICATION, RESPONSE = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
CALL_NUMBER, ARCHITECTURE = 0, 4
"""Offsets in `struct seccomp_data`."""

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


class FilterProgram(ctypes.Structure):
    """`struct sock_fprog`: a program of classic BPF, which keeps its instructions alive."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    @classmethod
    def of(cls, *instructions: tuple[int, int, int, int]) -> "FilterProgram":
        """Each instruction is an operation, the jumps for true and false, and an operand."""
        return cls(len(instructions), b"".join(struct.pack("=HBBI", *one) for one in instructions))


@dataclass(frozen=True)
class Numbers:
    """System calls of a machine, by number."""

    architecture: int
    seccomp: int
    accept: int
    accept4: int


MACHINES = {
    "x86_64": Numbers(0xC000003E, 317, 43, 288),
    "aarch64": Numbers(0xC00000B7, 277, 202, 242),
}


@dataclass(frozen=True)
class AcceptCall:
    """The call of a stopped thread: arguments of `accept4`, addresses as numbers."""

    listener: int
    address: int
    length: int
    flags: int

    def make(self) -> int:
        """Accept a connection for the caller; returns its descriptor. Raises OSError, EAGAIN where none waits."""
        return _checked(
            _libc().accept4(
                self.listener, ctypes.c_void_p(self.address), ctypes.c_void_p(self.length), ctypes.c_int(self.flags)
            )
        )


Answer = Callable[[AcceptCall], int | None]
"""The descriptor to hand out, or None for a call on another port. Raises OSError with the number to hand out."""


def answer_accepts(answer: Answer) -> None:
    """Have `answer` answer every `accept` of this thread and of the threads that it starts from now on, for good.

    Raises OSError where the kernel refuses: it has no seccomp, or another program listens to our calls already.
    """
    numbers = MACHINES.get(platform.machine())
    if numbers is None:
        raise OSError(errno.ENOSYS, f"no numbers of system calls for {platform.machine()}")
    started, listener = threading.Event(), -1

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
    """Have the kernel stop every `accept` of this thread and what descends from it; the descriptor of the listener.

    Raises OSError where the kernel refuses.
    """
    program = FilterProgram.of(
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_IF_EQUAL, 0, 4, numbers.architecture),
        (LOAD, 0, 0, CALL_NUMBER),
        (JUMP_IF_EQUAL, 1, 0, numbers.accept),
        (JUMP_IF_EQUAL, 0, 1, numbers.accept4),
        (RETURN, 0, 0, USER_NOTIF),
        (RETURN, 0, 0, ALLOW),
    )
    libc = _libc()
    # Without it only CAP_SYS_ADMIN may filter.
    _checked(libc.prctl(PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))))
    words = (numbers.seccomp, SECCOMP_SET_MODE_FILTER, FLAG_SPEC_ALLOW | FLAG_NEW_LISTENER)
    return _checked(libc.syscall(*map(ctypes.c_long, words), ctypes.byref(program)))


def _serve(listener: int, numbers: Numbers, answer: Answer) -> None:
    libc = _libc()
    while True:
        received = ctypes.create_string_buffer(NOTIFICATION.size)
        if libc.ioctl(listener, ctypes.c_ulong(RECEIVE), received) < 0:
            if ctypes.get_errno() in (errno.EINTR, errno.ENOENT):  # the caller was killed, or interrupted
                continue
            return  # from now on every accept waits: closed is safer than open
        cookie, thread, _, number, _, _, *arguments = NOTIFICATION.unpack(received.raw)
        value, problem, flags = 0, 0, CONTINUE
        if Path(f"/proc/self/task/{thread}").exists():  # not a child, which has our filter and its own descriptors
            fourth = arguments[3] if number == numbers.accept4 else 0
            call = AcceptCall(*(_int(arguments[0]), *arguments[1:3], _int(fourth)))
            try:
                given = answer(call)
                if given is not None:
                    value, flags = given, 0
            except OSError as error:
                problem, flags = -(error.errno or errno.ECONNABORTED), 0
        response = ctypes.create_string_buffer(RESPONSE.pack(cookie, value, problem, flags), RESPONSE.size)
        if libc.ioctl(listener, ctypes.c_ulong(SEND), response) < 0 and not flags and not problem:
            os.close(value)  # the caller was interrupted and asks again


def _int(register: int) -> int:
    return ctypes.c_int(register & 0xFFFFFFFF).value


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(result)


@cache
def _libc() -> ctypes.CDLL:
    # Opened once, its functions looked up, before the gate's thread needs them: a thread that waits for the loader with
    # Python's lock would keep the crash handler from reporting a crash inside the loader.
    libc = ctypes.CDLL(None, use_errno=True)
    for name in ("accept4", "ioctl", "prctl", "syscall"):
        getattr(libc, name)
    return libc


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
        + plain(source[0]).packed.ljust(16, b"\0")
        + plain(target[0]).packed.ljust(16, b"\0")
        + SOCKID_REST.pack(0, ANY_COOKIE, ANY_COOKIE)
    )
    version = socket.AF_INET if plain(source[0]).version == 4 else socket.AF_INET6
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
