"""Calls of the kernel that a caged process never needs are refused with EPERM (seccomp(2)).

What they would reach: other programs, other processes' memory, mounts and namespaces, and parts of
the kernel that are large and seldom used. Landlock has no word for most of them.
"""

import errno
import os
from collections.abc import Collection, Iterator

from core.cage.kernel import (
    ALLOW,
    ARCHITECTURE,
    ARGUMENT_BYTES,
    CALL_NUMBER,
    ERRNO,
    FIRST_ARGUMENT,
    JUMP_IF_ANY_BIT,
    JUMP_IF_AT_LEAST,
    JUMP_IF_EQUAL,
    LOAD,
    MACHINES,
    RETURN,
    FilterProgram,
    Instruction,
    install,
    this_machine,
)

EXECUTE = {"execve": (59, 221), "execveat": (322, 281)}
FORBIDDEN = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    # mounts and namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "unshare": (272, 97),
    "setns": (308, 268),
    # files past their folders
    "open_by_handle_at": (304, 265),
    # the kernel itself
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
}
"""Numbers on x86_64 and aarch64, asm/unistd_64.h and asm-generic/unistd.h."""
BY_PROCESS = {
    "kill": (62, 129),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
}
"""Signals to a process that the first argument names."""
BY_OTHER_NAMES = {"tkill": (200, 130), "pidfd_send_signal": (424, 424)}
CLONE = (56, 220)
CLONE3 = (435, 435)
NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, linux/sched.h."""
SOCKETS = {"socket": (41, 198), "socketpair": (53, 199)}
FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK."""
MULTIPATH = 262
"""IPPROTO_MPTCP: TCP for which Landlock's rules do not hold."""
TERMINALS = {"ioctl": (16, 29)}
TYPING = (0x5412, 0x541C)
"""TIOCSTI, TIOCLINUX: to type into the terminal that a process has inherited."""
X32 = 0x40000000
"""Added to the number of a call by the other 32-bit way into an x86_64 kernel."""

REFUSED: Instruction = (RETURN, 0, 0, ERRNO | errno.EPERM)
UNKNOWN: Instruction = (RETURN, 0, 0, ERRNO | errno.ENOSYS)
ALLOWED: Instruction = (RETURN, 0, 0, ALLOW)


def forbid(
    *,
    may_execute: bool = False,
    signals_only_to: int | None = None,
    families: Collection[int] = FAMILIES,
) -> None:
    """Refuse these calls to this thread and all that it starts, for good.

    `may_execute` leaves execve alone, for a process that is to become another program. With
    `signals_only_to` it sends signals to that process alone, which is for kernels whose Landlock
    knows no signals. It makes sockets of `families` alone. Raises OSError where the kernel refuses.
    """
    this_machine()
    machine = os.uname().machine
    install(FilterProgram.of(*instructions(machine, may_execute, signals_only_to, families)))


def instructions(
    machine: str,
    may_execute: bool,
    signals_only_to: int | None,
    families: Collection[int] = FAMILIES,
) -> tuple[Instruction, ...]:
    """Return the filter for a machine, `x86_64` or `aarch64`.

    Calls in the manner of another machine are refused.
    """
    column = list(MACHINES).index(machine)
    return (
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_IF_EQUAL, 1, 0, MACHINES[machine].architecture),
        REFUSED,
        (LOAD, 0, 0, CALL_NUMBER),
        (JUMP_IF_AT_LEAST, 0, 1, X32),
        REFUSED,
        *_forbidden(column, may_execute, signals_only_to, families),
        # Its flags lie in memory, which a filter does not see; the C library then takes `clone`.
        *_on(CLONE3[column], UNKNOWN),
        *_on(
            CLONE[column],
            (LOAD, 0, 0, FIRST_ARGUMENT),
            (JUMP_IF_ANY_BIT, 0, 1, NEW_NAMESPACES),
            REFUSED,
            ALLOWED,
        ),
        ALLOWED,
    )


def _forbidden(
    column: int, may_execute: bool, signals_only_to: int | None, families: Collection[int]
) -> Iterator[Instruction]:
    refused = dict(FORBIDDEN)
    if not may_execute:
        refused |= EXECUTE
    if signals_only_to is not None:
        refused |= BY_OTHER_NAMES
        for numbers in BY_PROCESS.values():
            yield from _on(numbers[column], *_first_argument(signals_only_to))
    for numbers in refused.values():
        yield from _on(numbers[column], REFUSED)
    for numbers in TERMINALS.values():
        yield from _on(
            numbers[column],
            (LOAD, 0, 0, FIRST_ARGUMENT + ARGUMENT_BYTES),
            *(step for one in TYPING for step in ((JUMP_IF_EQUAL, 0, 1, one), REFUSED)),
            ALLOWED,
        )
    for numbers in SOCKETS.values():
        yield from _on(
            numbers[column],
            (LOAD, 0, 0, FIRST_ARGUMENT + 2 * ARGUMENT_BYTES),
            (JUMP_IF_EQUAL, 0, 1, MULTIPATH),
            REFUSED,
            *_first_argument(*families),
        )


def _on(number: int, *body: Instruction) -> Iterator[Instruction]:
    """Yield `body`, which ends in a return, for the call with this number."""
    yield (JUMP_IF_EQUAL, 0, len(body), number)
    yield from body


def _first_argument(*allowed: int) -> Iterator[Instruction]:
    yield (LOAD, 0, 0, FIRST_ARGUMENT)
    for value in allowed:
        yield (JUMP_IF_EQUAL, 0, 1, value)
        yield ALLOWED
    yield REFUSED
