"""Enter a cage as a whole: Landlock, a filter of calls, no capability. One line says what holds."""

import logging
import os
from typing import NamedTuple

from core.cage import calls, landlock
from core.cage.kernel import keep_capabilities
from core.cage.landlock import Coverage, Rights


class Caged(NamedTuple):
    """A line of the log on what holds and what does not, and its level."""

    level: int
    line: str


def enter(rights: Rights, *, may_execute: bool = False, changes_account: bool = False) -> Caged:
    """Give up all but the rights, in this thread and all that it starts, for good.

    Root keeps its capabilities only where it `changes_account` later, which takes them. The line
    names what the kernel does not hold.
    """
    lines = []
    try:
        held = landlock.enter(rights)
    except OSError as problem:
        held = Coverage(0, (), f"this kernel refuses it ({problem})")
    lines.append(held.line)
    if held.abi >= landlock.SCOPED:
        only_to = None
    else:
        only_to = os.getpid()
    level = logging.INFO if held.abi else logging.WARNING
    try:
        calls.forbid(may_execute=may_execute, signals_only_to=only_to)
    except OSError as problem:
        level = logging.WARNING
        lines.append(f"NO FILTER OF CALLS: {problem.strerror}")
    else:
        lines.append("a filter of calls")
    if not changes_account:
        try:
            keep_capabilities()
        except OSError as problem:
            level = logging.WARNING
            lines.append(f"ROOT KEEPS ITS CAPABILITIES: {problem.strerror}")
    return Caged(level, f"caged: {'; '.join(lines)}")
