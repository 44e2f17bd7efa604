"""Command lines for nodes, joined for a shell here alone, and texts filled in by Jinja2.

Scripts, units and rules lie in files of their own format. Beside them are lines to copy, and return
codes.
"""

import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path, PurePath
from signal import Signals
from typing import TYPE_CHECKING, Any

from core.ground.errors import ExitCode

if TYPE_CHECKING:
    from jinja2 import Environment


Word = str | int | PurePath
"""One argument of a command, whatever characters are in it."""

Words = list[str] | tuple[str, ...]
"""A command as an argument list. Not `Sequence[str]`: a string is one, and a string is no argument
list."""


def quoted(*arguments: Word) -> str:
    """These words for a POSIX shell, each one argument however it is spelled.

    Raises ValueError for a word that no shell can take.
    """
    return shlex.join(checked(arguments))


def checked(arguments: Iterable[Word]) -> list[str]:
    """The words as strings.

    Raises TypeError for a string in the place of a list, ValueError for a NUL byte.
    """
    if isinstance(arguments, str):
        raise TypeError(
            f"expected an argument list, got the string {arguments!r}: split it into words"
        )
    strings = [str(word) for word in arguments]
    bad = next((word for word in strings if "\0" in word), None)
    if bad is not None:
        raise ValueError(f"expected an argument of a command, got {bad!r}: it holds a NUL byte")
    return strings


def shell(script: str, *arguments: Word) -> list[str]:
    """A command that runs `script` with the arguments as `$1`, `$2` and so on.

    The script itself is a constant.
    """
    return ["sh", "-c", script, "sh", *checked(arguments)]


def as_account(command: Words, *, root: bool = False, user: str | None = None) -> list[str]:
    """The command as the account `user`, as root, or as the account that is logged in."""
    if user is not None:
        return ["sudo", "-n", "-u", user, "--", *checked(command)]
    if root:
        return ["sudo", "-n", "--", *checked(command)]
    return checked(command)


def command(action: str, inventory: Path) -> str:
    """Return the line to type for these words after `fab`: `fab deploy stop --inventory pi.yaml`.

    The inventory is written as this call found it.
    """
    return f"fab {action} --inventory {quoted(inventory)}"


def settings(overrides: Iterable[str]) -> list[str]:
    """Return `--set KEY=VALUE` for each override of an inventory."""
    return [word for override in overrides for word in ("--set", override)]


def named(return_code: int) -> str:
    """`exit code 20 (PORT_TAKEN)`, `signal 9 (SIGKILL)`; a code without a name is its number."""
    if return_code < 0:
        number = -return_code
        if number in {int(signal) for signal in Signals}:
            name = Signals(number).name
        else:
            name = "unknown"
        return f"signal {number} ({name})"
    try:
        return f"exit code {return_code} ({ExitCode(return_code).name})"
    except ValueError:
        return f"exit code {return_code}"


_FOLDER = Path(__file__).parents[1]


class Inline(str):
    """Shell that stands in another script as it is."""


def filled(name: str, **values: Any) -> str:
    """The text of the file `name` below `deploy/` with these values.

    Each value in a shell script (`.sh`) becomes one quoted word, and each list its quoted words.
    Within quotes it may hold constants alone: names in capital letters
    (`tests/habits/test_root_on_nodes.py` looks).
    """
    return _environment(name.endswith(".sh")).get_template(name).render(values)


@cache
def _environment(of_shell: bool) -> "Environment":
    from jinja2 import (
        Environment,
        FileSystemLoader,
        StrictUndefined,
    )  # which most commands do not need

    return Environment(
        loader=FileSystemLoader(_FOLDER),
        undefined=StrictUndefined,
        finalize=_quoted_value if of_shell else None,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _quoted_value(value: Any) -> str:
    match value:
        case Inline():
            return value
        case list() | tuple():
            return quoted(*value)
        case _:
            return quoted(value)
