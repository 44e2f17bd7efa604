"""Having a thread of this process answer the `accept` calls of others, TensorFlow's included (seccomp notifications).

The kernel stops a thread that calls `accept` or `accept4` and hands the call to a listener (seccomp_unotify(2), Linux
5.5). The thread behind it makes the call itself, and what it returns is what the stopped thread gets. No privilege is
needed, and no connection reaches a caller without passing here. The filter holds for the thread that installs it and
for every thread that descends from it, and cannot be taken off again.
"""

import ctypes
import errno
import os
import platform
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PR_SET_NO_NEW_PRIVS = 38  # linux/prctl.h; without it only CAP_SYS_ADMIN may filter
SECCOMP_SET_MODE_FILTER = 1
FLAG_SPEC_ALLOW, FLAG_NEW_LISTENER = 1 << 2, 1 << 3  # the former: no slower speculation, which old kernels add
ALLOW, USER_NOTIF = 0x7FFF0000, 0x7FC00000
RECEIVE, SEND = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV and _SEND, linux/seccomp.h
CONTINUE = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE: let the caller make the call itself
NOTIFICATION, RESPONSE = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
CALL_NUMBER, ARCHITECTURE = 0, 4
"""Offsets in `struct seccomp_data`."""


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
    """What a stopped thread asked for: arguments of `accept4`, addresses as numbers."""

    listener: int
    address: int
    length: int
    flags: int

    def make(self) -> int:
        """Accept a connection in the caller's stead; its descriptor. Raises OSError, EAGAIN where none waits."""
        return _checked(
            _libc().accept4(
                self.listener, ctypes.c_void_p(self.address), ctypes.c_void_p(self.length), ctypes.c_int(self.flags)
            )
        )


Answer = Callable[[AcceptCall], int | None]
"""The descriptor to hand out, or None for a call that is none of ours. Raises OSError with the number to hand out."""


def answer_accepts(answer: Answer) -> None:
    """Have `answer` answer every `accept` of this thread and of those that it starts from now on, for good.

    Raises OSError where the kernel refuses: it has no seccomp, or another program listens to our calls already.
    """
    numbers = MACHINES.get(platform.machine())
    if numbers is None:
        raise OSError(errno.ENOSYS, f"no numbers of system calls for {platform.machine()}")
    started, listener = threading.Event(), -1

    def work() -> None:
        # Started before the filter, and so not under it.
        started.wait()
        if listener >= 0:
            _serve(listener, numbers, answer)

    threading.Thread(target=work, name="accept-gate", daemon=True).start()
    try:
        listener = _install(numbers)
    finally:
        started.set()


def _install(numbers: Numbers) -> int:
    program = b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (LOAD, 0, 0, ARCHITECTURE),
            (JUMP_IF_EQUAL, 0, 4, numbers.architecture),
            (LOAD, 0, 0, CALL_NUMBER),
            (JUMP_IF_EQUAL, 1, 0, numbers.accept),
            (JUMP_IF_EQUAL, 0, 1, numbers.accept4),
            (RETURN, 0, 0, USER_NOTIF),
            (RETURN, 0, 0, ALLOW),
        )
    )
    buffer = ctypes.create_string_buffer(program, len(program))  # alive until the kernel has copied it
    described = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer)))
    libc = _libc()
    _checked(libc.prctl(PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))))
    flags = FLAG_SPEC_ALLOW | FLAG_NEW_LISTENER
    return _checked(
        libc.syscall(*(ctypes.c_long(value) for value in (numbers.seccomp, SECCOMP_SET_MODE_FILTER, flags)), described)
    )


def _serve(listener: int, numbers: Numbers, answer: Answer) -> None:
    libc = _libc()
    while True:
        received = ctypes.create_string_buffer(NOTIFICATION.size)
        if libc.ioctl(listener, ctypes.c_ulong(RECEIVE), received) < 0:
            if ctypes.get_errno() in (errno.EINTR, errno.ENOENT):  # the caller was killed, or interrupted
                continue
            return  # from now on every accept waits: closed rather than open
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
