"""Tables of docs/page.md from the code, `/api/status` and the events.

`python -m core.status.reference --write` makes them.
"""

import ast
import dataclasses
import sys
from pathlib import Path

from core.logs.terminal import say
from core.status import parts, view
from core.status.history import KEPT

PAGE = Path("docs/page.md")
MADE = "made by `python -m core.status.reference --write`"
SHARED = ("ClassCount", "MixUp")
HEADING = "| field | meaning |\n|---|---|"


def render_reference() -> str:
    """Return a table for each dataclass of view.py, the whole picture first."""
    tree = ast.parse(Path(view.__file__).read_text(encoding="utf-8"))
    classes = [*_shared(), *(node for node in tree.body if isinstance(node, ast.ClassDef))]
    return "\n\n".join(_table(found) for found in reversed(classes))


def _shared() -> list[ast.ClassDef]:
    """Return the classes that the picture shares with the events."""
    tree = ast.parse(Path(parts.__file__).read_text(encoding="utf-8"))
    return [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in SHARED]


def _table(found: ast.ClassDef) -> str:
    rows = [f"| `{name}` {kind} | {meaning} |" for name, kind, meaning in fields(found)]
    if found.name == "RunView":
        rows.insert(0, "| `schema` int | version of this shape, 1 |")
    meaning = " ".join((ast.get_docstring(found) or "").split())
    return f"### {found.name}\n\n{meaning}\n\n{HEADING}\n" + "\n".join(rows)


def fields(found: ast.ClassDef) -> list[tuple[str, str, str]]:
    """Return name, type and meaning of each field."""
    rows = []
    for place, node in enumerate(found.body):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        if place + 1 < len(found.body):
            follows = found.body[place + 1]
        else:
            follows = None
        words = ""
        if isinstance(follows, ast.Expr) and isinstance(follows.value, ast.Constant):
            words = " ".join(str(follows.value.value).split()).replace("|", "\\|")
        rows.append((node.target.id, _type(ast.unparse(node.annotation)), words))
    return rows


def _type(annotation: str) -> str:
    named = (
        {"Name": "str", "Count": "int"}.get(annotation, annotation)
        .replace(", ...", "")
        .replace("JobState", "str")
        .replace(" | None", " or null")
    )
    return named.replace("tuple[", "list[").replace("|", "\\|")


def render_events() -> str:
    """Return a row for each event that the history holds."""
    rows = ["| `event` | fields | meaning |", "|---|---|---|"]
    for name, kind in KEPT.items():
        named = ", ".join(f"`{field.name}`" for field in dataclasses.fields(kind))
        meaning = " ".join((kind.__doc__ or "").split()).replace("|", "\\|")
        rows.append(f"| `{name}` | {named} | {meaning} |")
    return "\n".join(rows)


def with_reference(page: str) -> str:
    """Return the page with the tables between their marks. Raises ValueError without marks."""
    for name, tables in (("/api/status", render_reference()), ("events", render_events())):
        begin = f"<!-- {name}: {MADE} -->"
        end = f"<!-- end of {name} -->"
        before, found_begin, rest = page.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found_begin or not found_end:
            raise ValueError(f"{PAGE}: expected the lines {begin!r} and {end!r}")
        page = f"{before}{begin}\n\n{tables}\n\n{end}{after}"
    return page


if __name__ == "__main__":
    text = with_reference(PAGE.read_text(encoding="utf-8"))
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(text, encoding="utf-8")
    else:
        say(text, end="")
