"""Become another program inside a cage: `python -m core.cage --read /usr --write OUT -- WORDS`.

What Landlock of this kernel does not cover is not held: ask `landlock.kernel_coverage()`.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from core.cage import calls, landlock
from core.cage.calls import EXPORT, CallRights
from core.cage.landlock import FILE_CAPABILITIES, Rights, keep_capabilities

FAILED = 126
"""Answer of a shell for a program that cannot be executed."""


def words(rights: Rights, command: Sequence[str], *, sockets: bool = True) -> list[str]:
    """Return the command line of `command` in a cage, for the Python that runs this.

    Without `sockets` it makes none of any kind, also where this kernel's Landlock knows no ports.
    """
    flags: list[str] = []
    if not sockets:
        flags.append("--no-sockets")
    for flag, paths in (
        ("--read", rights.read),
        ("--write", rights.write),
        ("--device", rights.devices),
    ):
        for path in paths:
            flags += [flag, str(path)]
    for flag, ports in (("--bind", rights.bind), ("--connect", rights.connect)):
        if ports is not None:
            flags += [flag, ",".join(map(str, ports))]
    return [sys.executable, "-m", "core.cage", *flags, "--", *command]


def main(arguments: Sequence[str] | None = None) -> None:
    """Enter the cage and become the program, or end with the reason."""
    parser = argparse.ArgumentParser(prog="python -m core.cage", description=__doc__)
    parser.add_argument("--read", action="append", default=[], metavar="PATH")
    parser.add_argument("--write", action="append", default=[], metavar="PATH")
    parser.add_argument("--device", action="append", default=[], metavar="PATH")
    parser.add_argument("--bind", type=_ports, metavar="PORT,...", help="TCP; without it any")
    parser.add_argument("--connect", type=_ports, metavar="PORT,...", help="TCP; without it any")
    parser.add_argument("--no-sockets", action="store_true", help="make no socket of any kind")
    parser.add_argument("command", nargs="+")
    parsed = parser.parse_args(arguments)
    rights = Rights(
        tuple(parsed.read), tuple(parsed.write), tuple(parsed.device), parsed.bind, parsed.connect
    )
    try:
        coverage = landlock.enter(rights)
        keep_capabilities(FILE_CAPABILITIES)
        calls.forbid_by(coverage, EXPORT if parsed.no_sockets else CallRights(execute=True))
        os.execvp(parsed.command[0], parsed.command)
    except OSError as problem:
        parser.exit(FAILED, f"core.cage: {parsed.command[0]}: {problem}\n")


def _ports(text: str) -> tuple[int, ...]:
    return tuple(int(port) for port in text.split(",") if port)


if __name__ == "__main__":
    main()
