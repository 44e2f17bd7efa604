"""Processes that a program started and whose parents ended: they become our children.

A mark in the environment finds most of them, but a child may have an environment of its own. So
this process is their reaper (PR_SET_CHILD_SUBREAPER, prctl(2)): whatever the program leaves, in
whatever session, it finds here.
"""

import ctypes
import os
from contextlib import suppress
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h

Child = tuple[int, str]
"""Pid and when it started, in ticks since the machine did: a pid alone may be another process's by
now."""

_programs: set[int] = set()
_known: set[Child] = set()
"""Children that this process had before it ran a program."""
_adopted: set[Child] = set()
_reapers: set[int] = set()
"""The pid of this process, once it is the reaper. Until then all its children are its own."""


def before_program() -> None:
    """Become the reaper: call it before a program starts, in the process that starts it."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if not _programs:
        _known.clear()
        _known.update(_children().keys() - _adopted)
    _reapers.add(os.getpid())


def began(pid: int) -> None:
    """Note that this child is a program, and no orphan."""
    _programs.add(pid)


def ended(pid: int) -> None:
    """The program has ended and was waited for."""
    living()
    _programs.discard(pid)


def living() -> list[int]:
    """Pids of the orphans of all programs of this process; those that have ended are waited for."""
    if os.getpid() not in _reapers:
        return []
    children = _children()
    orphans = {child for child in children if child not in _known and child[0] not in _programs}
    _adopted.intersection_update(children)
    _adopted.update(orphans)
    for child in orphans:
        if children[child] == "Z":
            with suppress(ChildProcessError):
                os.waitpid(child[0], os.WNOHANG)
    return [pid for pid, since in orphans if children[pid, since] != "Z"]


def _children() -> dict[Child, str]:
    """Children of this process and the state of each."""
    own_pid = str(os.getpid())
    states = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if fields[1] == own_pid:
                    states[int(entry.name), fields[19]] = fields[0]
    return states
