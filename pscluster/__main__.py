"""`pscluster`, also as `python -m pscluster`: the tree of commands, from any folder."""

from deploy.common.interrupts import quiet_until_a_command_begins

quiet_until_a_command_begins()

import sys  # noqa: E402
from collections.abc import Sequence  # noqa: E402

from core.logs import say  # noqa: E402
from deploy.commands.completing import answers_shell  # noqa: E402  takes a while
from deploy.commands.tree import run  # noqa: E402
from pscluster.version import own_version  # noqa: E402

PROGRAM = "pscluster"


def main() -> None:
    """Run the command line; `pscluster --list` names the commands."""
    if not answers_shell(PROGRAM):
        sys.exit(_code(sys.argv[1:]))


def _code(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("--list", "-l"):
        return run([*arguments[1:], "--help"], PROGRAM)
    if arguments[0] in ("--version", "-V"):
        say(f"{PROGRAM} {own_version()}")
        return 0
    return run(arguments, PROGRAM)


if __name__ == "__main__":
    main()
