"""Refuses modules of over 400 lines, and functions of over 70 lines or 8 parameters.

A module that is longer owns more than one thing, a function that is longer does. `self` and `cls`
are no parameters here; dataclasses have no constructor of their own, and so no limit.
"""

import ast
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

LIMIT_LINES = 400
LIMIT_FUNCTION_LINES = 70
LIMIT_PARAMETERS = 8

ALLOWED = frozenset(
    {
        "tests/cluster/pages/example.py:training",
    }
)
"""Functions that broke a limit when it was set. The list only shrinks: an entry that breaks none is
an error too."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def too_long(root: Path, allowed: Collection[str] = ALLOWED) -> list[str]:
    """Return a line for each broken limit in the repository at `root`, and each stale entry.

    Looks at every Python module that git does not ignore.
    """
    problems = []
    found = set()
    for name in _modules(root):
        path = root / name
        if path.exists():
            text = path.read_text(encoding="utf-8")
        else:
            text = ""
        lines = text.count("\n")
        if lines > LIMIT_LINES:
            problems.append(
                f"{name}: {lines} lines, at most {LIMIT_LINES}: move what has a name of its own out"
                " of it"
            )
        for function, what in _long_functions(ast.parse(text, name)):
            entry = f"{name}:{function.name}"
            found.add(entry)
            if entry not in allowed:
                problems.append(f"{name}:{function.lineno}: {function.name} has {what}")
    stale = sorted(set(allowed) - found)
    return problems + [
        f"tools/check_lengths.py: {entry} breaks no limit: remove it from ALLOWED"
        for entry in stale
    ]


def _modules(root: Path) -> list[str]:
    listing = subprocess.run(
        [
            "git",
            "-C",
            str(root),
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
            "*.py",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    return sorted(set(listing.stdout.split("\0")) - {""})


def _long_functions(module: ast.Module) -> Iterator[tuple[Function, str]]:
    for function in ast.walk(module):
        if not isinstance(function, Function):
            continue
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > LIMIT_FUNCTION_LINES:
            yield (
                function,
                (
                    f"{lines} lines, at most {LIMIT_FUNCTION_LINES}: give its parts functions of"
                    " their own"
                ),
            )
        listed = function.args
        names = [each.arg for each in (*listed.posonlyargs, *listed.args, *listed.kwonlyargs)]
        count = len(names) - (names[:1] in (["self"], ["cls"]))
        if count > LIMIT_PARAMETERS:
            yield (
                function,
                (
                    f"{count} parameters, at most {LIMIT_PARAMETERS}: make those that go together a"
                    " dataclass"
                ),
            )


if __name__ == "__main__":
    broken = too_long(Path(__file__).resolve().parents[1])
    print("\n".join(broken), file=sys.stderr, end="\n" if broken else "")
    sys.exit(1 if broken else 0)
