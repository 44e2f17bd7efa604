"""Become another program in a profile's cage: `python -m core.cage export made=OUT -- COMMAND`.

What Landlock of this kernel does not cover is not held: ask `landlock.kernel_coverage()`.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence

from core.cage import calls, landlock
from core.cage.profiles import calls_of, rights_of

FAILED = 126
"""Answer of a shell for a program that cannot be executed."""


def caged_command(name: str, command: Sequence[str], **slots: Iterable[object]) -> list[str]:
    """Return the command line of `command` in the cage of a profile, for the Python that runs this.

    Each of the `slots` has an entry.
    """
    fills = [f"{slot}={entry}" for slot, entries in slots.items() for entry in entries]
    return [sys.executable, "-m", "core.cage", name, *fills, "--", *command]


def main(arguments: Sequence[str]) -> None:
    """Enter the cage and become the program, or end with the reason."""
    end = arguments.index("--")
    name, *fills = arguments[:end]
    command = [*arguments[end + 1 :]]
    slots = defaultdict(list)
    for fill in fills:
        slot, _, entry = fill.partition("=")
        slots[slot].append(entry)
    try:
        coverage = landlock.enter(rights_of(name, **slots))
        landlock.keep_capabilities(landlock.FILE_CAPABILITIES)
        calls.forbid_by(coverage, calls_of(name))
        os.execvp(command[0], command)
    except (OSError, ValueError) as problem:
        os.write(2, f"core.cage: {command[0]}: {problem}\n".encode())
        sys.exit(FAILED)


if __name__ == "__main__":
    main(sys.argv[1:])
