"""Which files, TCP ports, signals and abstract sockets a process reaches (landlock(7)).

    held = enter(Rights(read=("/usr",), write=(folder,), bind=(port,)))
    logger.info("%s", held.line())

It holds for the thread that enters and for all that it starts, through execve as well, and nothing
gives anything back. It needs no privilege and binds root too. A caged process reaches no other
process outside of its cage by ptrace, and so not `/proc/PID/root`, `environ` or `mem` of another,
unless it keeps CAP_PERFMON, which opens `environ` to root (`core.cage.calls` drops it).

Kernels differ: each ABI of the table `COVERS` knows more than the one before it; `Coverage` says
what this kernel's does not know.
"""

import contextlib
import ctypes
import errno
import os
import stat
import struct
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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
    def from_instructions(cls, *instructions: Instruction) -> "FilterProgram":
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
FILE_CAPABILITIES = 0b11111
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


# The same on every machine: asm-generic/unistd.h.
CREATE_RULESET = 444
ADD_RULE = 445
RESTRICT_SELF = 446
ASK_VERSION = 1
"""LANDLOCK_CREATE_RULESET_VERSION."""
BENEATH = 1
PORT = 2
"""LANDLOCK_RULE_PATH_BENEATH, LANDLOCK_RULE_NET_PORT."""
LOG_AFTER_EXEC = 1 << 1
"""LANDLOCK_RESTRICT_SELF_LOG_NEW_EXEC_ON: a refusal is in the kernel's audit log after execve."""

# linux/landlock.h, LANDLOCK_ACCESS_FS_*
EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_FOLDER = 1 << 3
MAKE_DEVICES = 1 << 6 | 1 << 11
REFER = 1 << 13
TRUNCATE = 1 << 14
DEVICE_CALLS = 1 << 15
BIND = 1 << 0
CONNECT = 1 << 1
"""LANDLOCK_ACCESS_NET_BIND_TCP, LANDLOCK_ACCESS_NET_CONNECT_TCP."""
SCOPES = 1 << 0 | 1 << 1
"""LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET, LANDLOCK_SCOPE_SIGNAL."""

READ = EXECUTE | READ_FILE | READ_FOLDER
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | DEVICE_CALLS
"""Rights that a rule for anything but a folder may name."""

FILES = 1
TRUNCATION = 3
PORTS = 4
DEVICES = 5
SCOPED = 6
LOGS = 7
COVERS = {
    FILES: "files",
    TRUNCATION: "truncating files",
    PORTS: "TCP ports",
    DEVICES: "calls to devices",
    SCOPED: "signals and abstract sockets",
}
"""Subjects that the kernel can forbid, by the first ABI that can."""
NEWER = {DEVICES: 2 * DEVICE_CALLS, TRUNCATION: DEVICE_CALLS, 2: TRUNCATE}
"""The first right to files that an ABI does not know, the newest first."""

Name = str | Path


@dataclass(frozen=True)
class Rights:
    """What a caged process may do; all else on files is refused.

    A path stands for all that is below it, and must exist: see `existing`. `read` allows reading,
    listing and executing, `write` reading and every change but executing, `devices` reading,
    writing and calls to the device. `bind` and `connect` are TCP ports; None sets no limit.
    """

    read: tuple[Name, ...] = ()
    write: tuple[Name, ...] = ()
    devices: tuple[Name, ...] = ()
    bind: tuple[int, ...] | None = None
    connect: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Coverage:
    """What holds in a cage: the kernel's ABI, or 0 and why there is none."""

    abi: int
    reason: str = ""

    def open(self, closed: Collection[int] = ()) -> tuple[str, ...]:
        """Return what it does not cover, without the subjects that something else has `closed`."""
        return tuple(
            subject for since, subject in COVERS.items() if since > self.abi and since not in closed
        )

    def line(self, closed: Collection[int] = ()) -> str:
        """Return what holds, and what does not, for a log."""
        gaps = ", ".join(self.open(closed))
        if not self.abi:
            return f"NO CAGE: {self.reason}; it does not cover {gaps}"
        if gaps:
            return f"Landlock ABI {self.abi}, which does not cover {gaps}"
        return f"Landlock ABI {self.abi}"


def abi() -> int:
    """Return the kernel's version of Landlock, 0 where there is none."""
    return kernel_coverage().abi


def kernel_coverage() -> Coverage:
    """Return the kernel's version of Landlock and what it does not cover, or why there is none."""
    try:
        version = call(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(ASK_VERSION))
    except OSError as problem:
        return held_by(-1, problem.errno or 0)
    return held_by(version, 0)


def held_by(version: int, problem: int) -> Coverage:
    """Return what a kernel covers by its answer to ASK_VERSION and, below 1, its error's number."""
    if version < 1:
        return Coverage(0, _why_none(problem))
    return Coverage(version)


def _why_none(problem: int) -> str:
    match problem:
        case errno.ENOSYS:
            return "this kernel is built without Landlock (CONFIG_SECURITY_LANDLOCK)"
        case errno.EOPNOTSUPP:
            return "this kernel has Landlock switched off: add landlock to `lsm=` at boot"
        case errno.EPERM:
            return "a filter of system calls refuses Landlock here: allow landlock_create_ruleset"
    return f"Landlock does not answer: {os.strerror(problem)}"


def existing(*paths: Name) -> tuple[Name, ...]:
    """Return those of `paths` that are there, for rights to what a machine may lack."""
    return tuple(path for path in paths if os.path.exists(path))


def enter(rights: Rights) -> Coverage:
    """Give up all but `rights` in this thread and all that it starts, for good.

    Threads that run already keep what they have. Where the kernel has no Landlock nothing changes,
    and `Coverage` says why. Raises OSError where a path of the rights is missing or the kernel
    refuses.
    """
    with Cage(rights) as cage:
        cage.enter()
        return cage.coverage


class Cage:
    """A cage that is ready: a child may enter it between fork and exec.

    `enter` imports and loads nothing. Close the cage when the last child has started.
    """

    def __init__(self, rights: Rights, coverage: Coverage | None = None) -> None:
        """Open all paths, for this kernel or less. Raises OSError that names a missing one."""
        self.coverage = coverage or kernel_coverage()
        self._rules = -1
        self._flags = LOG_AFTER_EXEC if self.coverage.abi >= LOGS else 0
        libc()
        if self.coverage.abi:
            self._rules = _ruleset(self.coverage.abi, rights)
            try:
                _add(self._rules, self.coverage.abi, rights)
            except BaseException:
                self.close()
                raise

    def enter(self) -> None:
        """Give up all else in this thread and its descendants. Raises OSError."""
        forbid_new_privileges()
        if self._rules >= 0:
            call(RESTRICT_SELF, ctypes.c_int(self._rules), ctypes.c_uint32(self._flags))

    def close(self) -> None:
        """Close what is open here; who has entered stays inside."""
        if self._rules >= 0:
            os.close(self._rules)
            self._rules = -1

    def __enter__(self) -> "Cage":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _file_rights(version: int) -> int:
    """Every right to files that this ABI knows."""
    for since, beyond in NEWER.items():
        if version >= since:
            return beyond - 1
    return REFER - 1


def _ruleset(version: int, rights: Rights) -> int:
    ports = 0
    if rights.bind is not None:
        ports |= BIND
    if rights.connect is not None:
        ports |= CONNECT
    fields = [_file_rights(version)]
    if version >= PORTS:
        fields.append(ports)
    if version >= SCOPED:
        fields.append(SCOPES)
    described = struct.pack(f"={len(fields)}Q", *fields)
    return call(CREATE_RULESET, described, ctypes.c_size_t(len(described)), ctypes.c_uint32(0))


def _add(rules: int, version: int, rights: Rights) -> None:
    supported = _file_rights(version)
    _add_paths(rules, rights.read, READ & supported)
    _add_paths(rules, rights.write, supported & ~EXECUTE & ~MAKE_DEVICES & ~DEVICE_CALLS)
    _add_paths(
        rules, rights.devices, (READ_FILE | WRITE_FILE | READ_FOLDER | DEVICE_CALLS) & supported
    )
    if version >= PORTS:
        for port, right in _by_port(rights):
            described = struct.pack("=QQ", right, port)
            call(ADD_RULE, ctypes.c_int(rules), PORT, described, ctypes.c_uint32(0))


def _by_port(rights: Rights) -> Iterator[tuple[int, int]]:
    for port in rights.bind or ():
        yield port, BIND
    for port in rights.connect or ():
        yield port, CONNECT


def _add_paths(rules: int, paths: Iterable[Name], allowed: int) -> None:
    for path in paths:
        with _path_descriptor(path) as descriptor:
            rights = allowed
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                rights &= OF_FILES
            described = struct.pack("=Qi", rights, descriptor)
            call(ADD_RULE, ctypes.c_int(rules), BENEATH, described, ctypes.c_uint32(0))


@contextlib.contextmanager
def _path_descriptor(path: Name) -> Iterator[int]:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
