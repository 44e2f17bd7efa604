"""The fields of `/api/status` in docs/page.md, from view.py: `python -m cluster.status.reference --write`."""

import ast
import sys
from pathlib import Path

from cluster.logs.terminal import say
from cluster.status import view

PAGE = Path("docs/page.md")
BEGIN, END = "<!-- /api/status: made by `python -m cluster.status.reference --write` -->", "<!-- end of /api/status -->"
HEADING = "| field | type | meaning |\n|---|---|---|"


def render_reference() -> str:
    """A table for each dataclass of view.py, the whole picture first."""
    tree = ast.parse(Path(view.__file__).read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    parts = [_table(found) for found in reversed(classes)]
    return "\n\n".join(parts)


def _table(found: ast.ClassDef) -> str:
    rows = [f"| `{name}` | {kind} | {meaning} |" for name, kind, meaning in fields(found)]
    if found.name == "RunView":
        rows.insert(0, "| `schema` | int | version of this shape, 1 |")
    meaning = (ast.get_docstring(found) or "").replace("\n", " ")
    return f"### {found.name}\n\n{meaning}\n\n{HEADING}\n" + "\n".join(rows)


def fields(found: ast.ClassDef) -> list[tuple[str, str, str]]:
    """Name, type and meaning of each field."""
    rows = []
    for place, node in enumerate(found.body):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        follows = found.body[place + 1] if place + 1 < len(found.body) else None
        words = ""
        if isinstance(follows, ast.Expr) and isinstance(follows.value, ast.Constant):
            words = " ".join(str(follows.value.value).split()).replace("|", "\\|")
        rows.append((node.target.id, _type(ast.unparse(node.annotation)), words))
    return rows


def _type(annotation: str) -> str:
    named = annotation.replace(", ...", "").replace("JobState", "str").replace(" | None", " or null")
    return named.replace("tuple[", "list[").replace("|", "\\|")


def with_reference(page: str) -> str:
    """The page with the tables between its two marks. Raises ValueError if it has no marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE}: expected the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n{render_reference()}\n\n{END}{after}"


if __name__ == "__main__":
    text = with_reference(PAGE.read_text(encoding="utf-8"))
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(text, encoding="utf-8")
    else:
        say(text, end="")
