"""Enter a cage as a whole: Landlock, a filter of calls, no capability. One line says what holds."""

import logging
import os
from typing import NamedTuple

from core.cage import calls, landlock
from core.cage.calls import CallRights
from core.cage.kernel import keep_capabilities
from core.cage.landlock import Cage, Coverage, Rights


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


def of_kernel(call_rights: CallRights, coverage: Coverage | None = None) -> Coverage:
    """Return what Landlock of this or another kernel holds of a process that keeps these calls."""
    coverage = coverage or landlock.found()
    if call_rights.free and coverage.abi == landlock.FILES:
        return Coverage(0, "Landlock's first version refuses every move from folder to folder")
    return coverage


def enter(
    rights: Rights,
    call_rights: CallRights = CallRights(),  # noqa: B008  frozen
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
    calls.forbid(call_rights, signals_only_to=only_to)


class WholeCage(Cage):
    """A cage that a child enters between fork and exec, with the filter of calls."""

    def __init__(self, rights: Rights, call_rights: CallRights) -> None:
        """Open all paths. Raises OSError that names one that is missing."""
        super().__init__(rights, of_kernel(call_rights))
        self.caged = what_holds(self.coverage, call_rights)
        self._call_rights = call_rights

    def enter(self) -> None:
        """Give up all else. Raises OSError; a kernel without filters is said on standard error."""
        super().enter()
        try:
            forbid_by(self.coverage, self._call_rights)
        except OSError as problem:
            os.write(2, f"caged: NO FILTER OF CALLS: {problem.strerror}\n".encode())
