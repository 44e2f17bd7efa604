"""The schema of `/api/status` and the table of events on docs/page.md, from the code.

`python -m core.status.reference --write` makes them.
"""

import ast
import dataclasses
import inspect
import json
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from core.logs.terminal import say
from core.status import parts, view
from core.status.history import KEPT

PAGE = Path("docs/page.md")
SCHEMA = Path("docs/status.schema.json")
MADE = "made by `python -m core.status.reference --write`"


def schema() -> dict[str, Any]:
    """Return the JSON schema of what `/api/status` answers.

    The description of a field is the docstring below it.
    """
    made = TypeAdapter(view.RunView).json_schema()
    classes = made.pop("$defs")
    meanings = _meanings()
    for name, described in (*classes.items(), ("RunView", made)):
        for field, kind in described["properties"].items():
            kind.pop("title", None)
            kind["description"] = meanings[name, field]
    made["properties"] = {
        "schema": {"const": view.SCHEMA, "description": "version of this shape"},
        **made["properties"],
    }
    made["required"] = ["schema", *made["required"]]
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, **made, "$defs": classes}


def written_schema() -> str:
    """Return the text of docs/status.schema.json."""
    return json.dumps(schema(), indent=1) + "\n"


def _meanings() -> dict[tuple[str, str], str]:
    """Return the docstring of each field of the picture, by class and field."""
    return {
        (node.name, field): meaning
        for module in (parts, view)
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.ClassDef)
        for field, meaning in fields(node)
    }


def fields(definition: ast.ClassDef) -> list[tuple[str, str]]:
    """Return name and meaning of each field."""
    rows = []
    for node, following in zip(definition.body, [*definition.body[1:], None], strict=True):
        match node, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str() as text)),
            ):
                rows.append((name, " ".join(text.split())))
            case ast.AnnAssign(target=ast.Name(id=name)), _:
                rows.append((name, ""))
    return rows


def render_events() -> str:
    """Return a row for each event that the history holds."""
    rows = ["| `event` | fields | meaning |", "|---|---|---|"]
    for name, kind in KEPT.items():
        named = ", ".join(f"`{field.name}`" for field in dataclasses.fields(kind))
        meaning = " ".join((kind.__doc__ or "").split()).replace("|", "\\|")
        rows.append(f"| `{name}` | {named} | {meaning} |")
    return "\n".join(rows)


def with_events(page: str) -> str:
    """Return the page with the table between its marks. Raises ValueError without marks."""
    begin = f"<!-- events: {MADE} -->"
    end = "<!-- end of events -->"
    before, has_begin, rest = page.partition(begin)
    _, has_end, after = rest.partition(end)
    if not has_begin or not has_end:
        raise ValueError(f"{PAGE}: expected the lines {begin!r} and {end!r}")
    return f"{before}{begin}\n\n{render_events()}\n\n{end}{after}"


if __name__ == "__main__":
    text = with_events(PAGE.read_text(encoding="utf-8"))
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(text, encoding="utf-8")
        SCHEMA.write_text(written_schema(), encoding="utf-8")
    else:
        say(text + written_schema(), end="")
