"""Calls of the kernel that Python has no function for, and programs of classic BPF."""

import ctypes
import errno
import os
import struct
from dataclasses import dataclass
from functools import cache

PR_SET_NO_NEW_PRIVS = 38  # linux/prctl.h
PIDFD_GETFD = 438  # the same number on x86_64 and aarch64

# linux/seccomp.h
SECCOMP_SET_MODE_FILTER = 1
FLAG_SPEC_ALLOW = 1 << 2
"""No slower speculation, which old kernels add."""
ALLOW = 0x7FFF0000
ERRNO = 0x00050000

# linux/bpf_common.h
LOAD = 0x20
JUMP_IF_EQUAL = 0x15
JUMP_IF_AT_LEAST = 0x35
AND = 0x54
RETURN = 0x06

CALL_NUMBER = 0
ARCHITECTURE = 4
FIRST_ARGUMENT = 16
"""Offsets in `struct seccomp_data`; of an argument the lower half, on little-endian machines."""
ARGUMENT_BYTES = 8

Instruction = tuple[int, int, int, int]
"""An operation, the jumps for true and false, and an operand."""


class FilterProgram(ctypes.Structure):
    """`struct sock_fprog`: a program of classic BPF, which keeps its instructions alive."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    @classmethod
    def of(cls, *instructions: Instruction) -> "FilterProgram":
        """Return the program of these instructions."""
        return cls(
            len(instructions),
            b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions),
        )


@dataclass(frozen=True)
class SeccompNumbers:
    """What differs between machines: the BPF name of the architecture, two calls by number."""

    architecture: int
    seccomp: int


MACHINES = {"x86_64": SeccompNumbers(0xC000003E, 317), "aarch64": SeccompNumbers(0xC00000B7, 277)}


def this_machine() -> SeccompNumbers:
    """Return this machine's numbers. Raises OSError for one that nothing here knows."""
    numbers = MACHINES.get(os.uname().machine)
    if numbers is None:
        raise OSError(errno.ENOSYS, f"no numbers of system calls for {os.uname().machine}")
    return numbers


@cache
def libc() -> ctypes.CDLL:
    """The C library.

    It is opened once, its functions looked up, before a thread needs them: one that waits for the
    loader with Python's lock would keep the crash handler from reporting a crash inside the loader.
    """
    library = ctypes.CDLL(None, use_errno=True)
    for name in ("accept4", "ioctl", "prctl", "syscall"):
        getattr(library, name)
    return library


def checked(result: int) -> int:
    """Return the result of a call. Raises OSError where it says that the call failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(result)


def call(number: int, *arguments: object) -> int:
    """Make the kernel's call of this number. Raises OSError."""
    return checked(libc().syscall(ctypes.c_long(number), *arguments))


def descriptor_of(process: int, descriptor: int) -> int:
    """Return a copy of a descriptor of the process that a pidfd names. Raises OSError."""
    return call(PIDFD_GETFD, *map(ctypes.c_long, (process, descriptor, 0)))


def prctl(what: int, value: int) -> None:
    """Set a property of this thread or process (prctl(2)). Raises OSError."""
    checked(libc().prctl(what, *map(ctypes.c_ulong, (value, 0, 0, 0))))


def forbid_new_privileges() -> None:
    """Keep this thread and its descendants from gaining privileges through execve, for good.

    Without it only CAP_SYS_ADMIN may filter or enter a cage. Raises OSError.
    """
    prctl(PR_SET_NO_NEW_PRIVS, 1)


CAPABILITIES_VERSION = 0x20080522  # linux/capability.h
OF_FILES = 0b11111
"""CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID."""


def keep_capabilities(capabilities: int = 0) -> None:
    """Give up the capabilities of root but `capabilities`, in this thread and all that it starts.

    CAP_PERFMON, for instance, reads environments past Landlock. Who may not gain privileges has
    none back after execve. Raises OSError.
    """
    header = struct.pack("=Ii", CAPABILITIES_VERSION, 0)
    data = ctypes.create_string_buffer(24)
    checked(libc().capget(header, data))
    _, permitted, _, _, further, _ = struct.unpack("=6I", data.raw)
    remaining = permitted & capabilities
    # Also where the filter of a node's unit refuses the call.
    if remaining == permitted and not further:
        return
    checked(libc().capset(header, struct.pack("=6I", remaining, remaining, 0, 0, 0, 0)))


def install(program: FilterProgram, flags: int = 0) -> int:
    """Filter the calls of this thread and its descendants, for good; return what seccomp returns.

    Raises OSError where the kernel refuses.
    """
    forbid_new_privileges()
    arguments = map(ctypes.c_long, (SECCOMP_SET_MODE_FILTER, FLAG_SPEC_ALLOW | flags))
    return call(this_machine().seccomp, *arguments, ctypes.byref(program))
