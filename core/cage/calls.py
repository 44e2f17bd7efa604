"""Calls of the kernel that a caged process never needs are refused with EPERM (seccomp(2)).

What they would reach: other programs, other processes and what they share, mounts and namespaces,
modes and times of files, and parts of the kernel that are large and seldom used. Landlock has no
word for most of them.
"""

import errno
import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from core.cage import landlock
from core.cage.landlock import (
    ALLOW,
    AND,
    ARCHITECTURE,
    ARGUMENT_BYTES,
    CALL_NUMBER,
    ERRNO,
    FIRST_ARGUMENT,
    JUMP_IF_AT_LEAST,
    JUMP_IF_EQUAL,
    LOAD,
    MACHINES,
    PORTS,
    RETURN,
    SCOPED,
    TRUNCATION,
    Cage,
    Coverage,
    FilterProgram,
    Instruction,
    Rights,
    install,
    keep_capabilities,
    this_machine,
)

UNIX = 1  # AF_UNIX and so on: families of sockets
INET = 2
INET6 = 10
NETLINK = 16
NETWORK = (INET, INET6, NETLINK)
FAMILIES = {"unix": UNIX, "inet": INET, "inet6": INET6, "netlink": NETLINK}


@dataclass(frozen=True)
class CallRights:
    """Which calls a process keeps. All but `free` make Unix sockets in pairs alone.

    `execute`: to become another program. `families`: of the sockets that it makes; with none it
    makes no pair either. `free` is for code of a person: it signals what it starts, sets modes and
    times of its files, and binds and connects as it likes.
    """

    execute: bool = False
    families: tuple[int, ...] = NETWORK
    free: bool = False

    @property
    def closes(self) -> Collection[int]:
        """The subjects of `landlock.COVERS` that no older kernel leaves open to such a process.

        The filter of calls holds them, or nothing is said of them.
        """
        if self.free:
            return (PORTS,)
        closed = [TRUNCATION]
        if UNIX not in self.families:
            closed.append(SCOPED)
        if not self.families:
            closed.append(PORTS)
        return closed


class ArgumentRule(NamedTuple):
    """What an argument of a call must be: one of `values`, or unless `only` none of them.

    Only the bits of `mask` count, where there is one.
    """

    argument: int
    values: tuple[int, ...]
    only: bool = True
    mask: int = 0


class ListedCall(NamedTuple):
    """A line of the table; a machine of MACHINES without the call has None for its number."""

    whom: str
    name: str
    numbers: tuple[int | None, ...]
    rules: tuple[ArgumentRule, ...]


TABLE = Path(__file__).with_name("calls.txt")
_RULE = re.compile(r"(\d)([=!])([^& ]+)(?:&(\S+))?")


def _call(line: str) -> ListedCall:
    whom, name, *fields = line.split()
    numbers = tuple(None if field == "-" else int(field) for field in fields[: len(MACHINES)])
    rules = []
    for argument, sign, values, mask in _RULE.findall(" ".join(fields[len(MACHINES) :])):
        of = tuple(int(value, 0) for value in values.split(","))
        rules.append(ArgumentRule(int(argument), of, sign == "=", int(mask or "0", 0)))
    return ListedCall(whom, name, numbers, tuple(rules))


CALLS = tuple(
    _call(line) for line in TABLE.read_text().splitlines() if line and not line.startswith("#")
)
UNSEEN = (435, 437)
"""`clone3`, `openat2`: their flags lie in memory, which a filter does not see. Programs then take
`clone`, `openat`."""
SOCKET = (41, 198)
INTERNET = (ArgumentRule(1, (1, 2), mask=0xF), ArgumentRule(2, (0, 6, 17)))
"""Streams and datagrams of TCP and UDP. SCTP, SMC and multipath TCP are streams that Landlock does
not see as TCP."""
PROTOCOLS: Mapping[int, tuple[ArgumentRule, ...]] = {
    UNIX: (),
    INET: INTERNET,
    INET6: INTERNET,
    NETLINK: (ArgumentRule(2, (0, 4)),),  # NETLINK_ROUTE, NETLINK_SOCK_DIAG
}
X32 = 0x40000000
"""Added to the number of a call by the other 32-bit way into an x86_64 kernel."""

REFUSED: Instruction = (RETURN, 0, 0, ERRNO | errno.EPERM)
UNKNOWN: Instruction = (RETURN, 0, 0, ERRNO | errno.ENOSYS)
ALLOWED: Instruction = (RETURN, 0, 0, ALLOW)


def forbid(call_rights: CallRights, *, signals_only_to: int = 0) -> None:
    """Refuse all but these calls to this thread and all that it starts, for good.

    With `signals_only_to` it sends signals to that process alone, which is for kernels whose
    Landlock knows no signals. Raises OSError where the kernel refuses.
    """
    this_machine()
    machine = os.uname().machine
    install(FilterProgram.from_instructions(*instructions(machine, call_rights, signals_only_to)))


def instructions(
    machine: str, call_rights: CallRights, signals_only_to: int = 0
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
        *_forbidden(column, call_rights, signals_only_to),
        ALLOWED,
    )


def _forbidden(column: int, call_rights: CallRights, signals_only_to: int) -> Iterator[Instruction]:
    meant = {
        "all": True,
        "execute": not call_rights.execute,
        "free": not call_rights.free,
        "pair": UNIX not in call_rights.families,
        "none": not call_rights.families,
        "sender": bool(signals_only_to),
        "signal": bool(signals_only_to),
    }
    refused: dict[int, list[ArgumentRule]] = {}
    for whom, _, numbers, rules in CALLS:
        number = numbers[column]
        if number is not None and meant[whom]:
            refused.setdefault(number, []).extend(rules)
            if whom == "sender":
                refused[number].append(ArgumentRule(0, (signals_only_to,)))
    for number, limits in refused.items():
        yield from _on(number, *(_held_to(*limits) if limits else (REFUSED,)))
    for number in UNSEEN:
        yield from _on(number, UNKNOWN)
    yield from _on(SOCKET[column], *_sockets(call_rights.families))


def _sockets(families: Collection[int]) -> Iterator[Instruction]:
    yield (LOAD, 0, 0, FIRST_ARGUMENT)
    for family in families:
        yield from _on(family, *_held_to(*PROTOCOLS[family]))
    yield REFUSED


def _on(value: int, *body: Instruction) -> Iterator[Instruction]:
    """Yield `body`, which ends in a return, for what was loaded when it is this value."""
    yield (JUMP_IF_EQUAL, 0, len(body), value)
    yield from body


def _held_to(*rules: ArgumentRule) -> Iterator[Instruction]:
    """Allow what all rules allow."""
    for rule in rules:
        yield (LOAD, 0, 0, FIRST_ARGUMENT + rule.argument * ARGUMENT_BYTES)
        if rule.mask:
            yield (AND, 0, 0, rule.mask)
        for more, value in zip(reversed(range(len(rule.values))), rule.values, strict=True):
            if rule.only:
                yield (JUMP_IF_EQUAL, more + 1, 0, value)
            else:
                yield (JUMP_IF_EQUAL, 0, 1, value)
                yield REFUSED
        if rule.only:
            yield REFUSED
    yield ALLOWED


class Caged(NamedTuple):
    """A line of the log on what holds and what does not, and its level."""

    level: int
    line: str


def what_holds(coverage: Coverage, call_rights: CallRights | None) -> Caged:
    """Return what a kernel holds of a process that keeps these calls; None: there is no filter.

    It is a warning where the kernel leaves something open.
    """
    if call_rights is None:
        return Caged(logging.WARNING, f"caged: {coverage.line()}")
    level = logging.WARNING if coverage.open(call_rights.closes) else logging.INFO
    return Caged(level, f"caged: {coverage.line(call_rights.closes)}; a filter of calls")


def coverage_under(call_rights: CallRights, coverage: Coverage | None = None) -> Coverage:
    """Return what Landlock of this or another kernel holds of a process that keeps these calls."""
    coverage = coverage or landlock.kernel_coverage()
    if call_rights.free and coverage.abi == landlock.FILES:
        return Coverage(0, "Landlock's first version refuses every move from folder to folder")
    return coverage


def enter_whole_cage(
    rights: Rights,
    call_rights: CallRights,
    *,
    changes_account: bool = False,
) -> Caged:
    """Give up all but the rights and these calls, in this thread and all that it starts, for good.

    Root keeps its capabilities only where it `changes_account` later, which takes them. The line
    names what the kernel does not hold.
    """
    problems = []
    filtered: CallRights | None = call_rights
    try:
        coverage = landlock.enter(rights)
    except OSError as problem:
        coverage = Coverage(0, f"this kernel refuses it ({problem})")
    try:
        forbid_by(coverage, call_rights)
    except OSError as problem:
        filtered = None
        problems.append(f"NO FILTER OF CALLS: {problem.strerror}")
    if not changes_account:
        try:
            keep_capabilities()
        except OSError as problem:
            problems.append(f"ROOT KEEPS ITS CAPABILITIES: {problem.strerror}")
    caged = what_holds(coverage, filtered)
    if problems:
        return Caged(logging.WARNING, "; ".join((caged.line, *problems)))
    return caged


def forbid_by(coverage: Coverage, call_rights: CallRights) -> None:
    """Refuse all other calls, and signals to others where this Landlock knows none.

    Raises OSError where the kernel refuses.
    """
    only_to = 0
    if coverage.abi < landlock.SCOPED and not call_rights.free:
        only_to = os.getpid()
    forbid(call_rights, signals_only_to=only_to)


class WholeCage(Cage):
    """A cage that a child enters between fork and exec, with the filter of calls."""

    def __init__(self, rights: Rights, call_rights: CallRights) -> None:
        """Open all paths. Raises OSError that names one that is missing."""
        super().__init__(rights, coverage_under(call_rights))
        self.caged = what_holds(self.coverage, call_rights)
        self._call_rights = call_rights

    def enter(self) -> None:
        """Give up all else. Raises OSError; a kernel without filters is said on standard error."""
        super().enter()
        try:
            forbid_by(self.coverage, self._call_rights)
        except OSError as problem:
            os.write(2, f"caged: NO FILTER OF CALLS: {problem.strerror}\n".encode())
