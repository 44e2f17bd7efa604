"""`completion SHELL`: the script that completes commands, flags and files, made by click."""

import sys
from pathlib import Path

from core.ground.errors import UsageError
from core.logs import say
from deploy.commands.action import takes
from deploy.commands.flags import ActionFlags, word

SHELLS = ("bash", "zsh", "fish")


class CompletionFlags(ActionFlags):
    """The flags of `completion`."""

    shell: str = word("the shell: bash, zsh or fish", choices=SHELLS)


@takes(CompletionFlags)
def completion(flags: CompletionFlags) -> None:
    """Print a shell's completion: `source <(fab completion bash)`."""
    if flags.shell not in SHELLS:
        raise UsageError(f"completion: expected {', '.join(SHELLS)}, got {flags.shell!r}")
    say(script(flags.shell, program_name()))


def program_name() -> str:
    """Return how this program was called: `fab` or `pscluster`."""
    if Path(sys.argv[0]).name == "fab":
        return "fab"
    return "pscluster"


def script(shell: str, program: str) -> str:
    """Return the script of one shell, which asks `program` for what may follow."""
    from click import Command
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    return kind(Command(program), {}, program, variable(program)).source()


def variable(program: str) -> str:
    """Return the variable of the environment by which a shell asks."""
    return f"_{program.upper()}_COMPLETE"
