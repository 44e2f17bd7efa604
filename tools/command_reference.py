"""The table of docs/commands.md from the tree: `python -m tools.command_reference --write`."""

import sys
from pathlib import Path

from deploy.commands.flags import Flag
from deploy.commands.registry import COMMANDS
from tools.metrics_reference import print_or_write

PAGE = Path("docs/commands.md")
BEGIN = (
    "<!-- Made by `python -m tools.command_reference --write`; a test fails when it is stale. -->"
)
END = "<!-- The end of what was made. -->"


def table() -> str:
    """Return a row for each command, with the flags that it takes."""
    rows = ["| command | flags |", "|---|---|"]
    for name, action in COMMANDS.items():
        words = [_word(flag) for flag in action.flags if flag.word or flag.behind_dashes]
        flags = [_shown(flag) for flag in action.flags if not (flag.word or flag.behind_dashes)]
        command = " ".join(["fab", name, *words])
        cell = " ".join(flags)
        if flags:
            cell = f"`{cell}`"
        rows.append(f"| `{command}` | {cell} |")
    return "\n".join(rows)


def _word(flag: Flag) -> str:
    if flag.behind_dashes:
        return f"-- {flag.spelled.upper()}"
    if flag.needed:
        return flag.spelled.upper()
    return f"[{flag.spelled.upper()}]"


def _shown(flag: Flag) -> str:
    if flag.bare is not None:
        return f"--{flag.spelled} {flag.metavar}"
    return f"--{flag.spelled}"


def render(page: str) -> str:
    """Return the page with the table of now. Raises ValueError where it has no place for one."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE}: expected the lines {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{tail}"


def main(arguments: list[str] | None = None) -> int:
    """Print the page, or write it into the project. Returns the exit code."""
    page = Path(__file__).parents[1] / PAGE
    made = render(page.read_text(encoding="utf-8"))
    return print_or_write("tools.command_reference", PAGE, made, arguments)


if __name__ == "__main__":
    sys.exit(main())
