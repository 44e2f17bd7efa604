"""The schemas of `/api/status`, of the lines of `history.jsonl` and of a format's file.

`python -m tools.status_schemas` makes them from the code.
"""

import ast
import inspect
import json
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from core.data.described.description import RecordingFormat
from core.status import parts, view
from core.status.history import KEPT

SCHEMA = Path("docs/status.schema.json")
HISTORY = Path("docs/history.schema.json")
FORMAT = Path("docs/format.schema.json")
DIALECT = "https://json-schema.org/draft/2020-12/schema"


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
    return {"$schema": DIALECT, **made, "$defs": classes}


def history_schema() -> dict[str, Any]:
    """Return the JSON schema of a line of `history.jsonl`, by its event."""
    mode: Literal["serialization"] = "serialization"
    references, made = TypeAdapter.json_schemas(
        [(name, mode, TypeAdapter(kind)) for name, kind in KEPT.items()]
    )
    lines = [
        {"properties": {"event": {"const": name}}, "required": ["event"], **references[name, mode]}
        for name in KEPT
    ]
    return {"$schema": DIALECT, "anyOf": lines, "$defs": made["$defs"]}


def format_schema() -> dict[str, Any]:
    """Return the JSON schema of a YAML file that describes recordings."""
    return {"$schema": DIALECT, **RecordingFormat.model_json_schema()}


def written(schema: dict[str, Any]) -> str:
    """Return the text of a schema's file."""
    return json.dumps(schema, indent=1) + "\n"


def _meanings() -> dict[tuple[str, str], str]:
    """Return the docstring of each field of the picture, by class and field."""
    own = {
        node.name: dict(fields(node))
        for module in (parts, view)
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.ClassDef)
    }
    return {
        (name, field): meaning
        for name in own
        for base in reversed(getattr(view, name, object).__mro__)
        for field, meaning in own.get(base.__name__, {}).items()
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


if __name__ == "__main__":
    SCHEMA.write_text(written(schema()), encoding="utf-8")
    HISTORY.write_text(written(history_schema()), encoding="utf-8")
    FORMAT.write_text(written(format_schema()), encoding="utf-8")
