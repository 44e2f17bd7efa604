"""Scripts, units and rules in files of their own format, filled in by Jinja2."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploy.common.command_line import quoted

if TYPE_CHECKING:
    from jinja2 import Environment

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
        finalize=_words if of_shell else None,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _words(value: Any) -> str:
    match value:
        case Inline():
            return value
        case list() | tuple():
            return quoted(*value)
        case _:
            return quoted(value)
