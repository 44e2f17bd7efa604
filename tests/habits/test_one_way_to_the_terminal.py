"""What a person is shown goes through `cluster/logs/terminal.py` or `screen.py`, which make foreign text harmless."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.common.project import ROOT

ROOMS = ("cluster", "deploy", "ps_node", "recognise", "worker_node")
TERMINAL, SCREEN = Path("cluster/logs/terminal.py"), Path("cluster/logs/screen.py")
OF_RICH = {"rich.console.Console", "rich.text.Text", "rich.markup", "rich.status", "rich.print", "rich.prompt"}
ON_A_NODE = (Path("deploy/rooted"), Path("cluster/exported/timed/on_node.py"))
"""Programs of a node, without `cluster.logs`; what they print comes to `fab` over SSH, and is foreign there."""
MAY_READ_THE_TYPE = {Path("cluster/jobs/progress.py"): {"rich.text.Text"}}
"""Where a type of rich is named in a signature and made by `words`."""


def modules() -> list[Path]:
    found = (path.relative_to(ROOT) for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))
    return [path for path in found if not any(map(path.is_relative_to, ON_A_NODE))]


def ways_around(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, what) of everything that reaches a terminal by another way."""
    ours = any("cluster.logs.terminal.say" in imports(node) for node in ast.walk(tree))
    for node in ast.walk(tree):
        bound = (isinstance(node, ast.arg) and node.arg) or (
            isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id
        )
        if ours and bound == "say":
            yield node.lineno, "another say hides cluster.logs.terminal.say"  # type: ignore[attr-defined]
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            first = node.args[0] if node.args else None
            harmless = first is None or isinstance(first, ast.Constant)
            cleaned = isinstance(first, ast.Call) and ast.unparse(first.func) == "visible"
            if name == "print" and path != TERMINAL:
                yield node.lineno, "print(): use say() or say_json()"
            if name.endswith((".stdout.write", ".stderr.write", ".stdout.buffer.write", ".stderr.buffer.write")):
                yield node.lineno, f"{name}(): use say()"
            if name in ("input", "Exit") and not (harmless or cleaned):
                yield node.lineno, f"{name}() of text that is not made visible()"
            if name.split(".")[-1] in ("from_markup", "from_ansi", "render_markup"):
                yield node.lineno, f"{name}(): markup in a text"
            if name.split(".")[-1] in ("Live", "Status", "Progress") and "console" not in {
                one.arg for one in node.keywords
            }:
                yield node.lineno, f"{name}() without a Screen as its console"
            if name == "logging.Formatter":
                yield node.lineno, f"{name}(): use a formatter of cluster.logs"
            if name.split(".")[-1] == "Text" and path != SCREEN and node.args:
                yield node.lineno, "Text(): use words() or coloured()"
        for imported in imports(node):
            allowed = path == SCREEN or imported in MAY_READ_THE_TYPE.get(path, ())
            if not allowed and any(imported == one or imported.startswith(f"{one}.") for one in OF_RICH):
                yield node.lineno, f"{imported}: use cluster.logs.screen"  # type: ignore[attr-defined]


def imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


@pytest.mark.parametrize("path", modules(), ids=str)
def test_nothing_else_reaches_the_terminal(path: Path) -> None:
    found = list(ways_around(path, ast.parse((ROOT / path).read_text(encoding="utf-8"))))
    assert not found, "\n".join(f"{path}:{line}: {what}" for line, what in found)


@pytest.mark.parametrize(
    "code",
    [
        "print(x)",
        "sys.stderr.write(x)",
        "raise Exit(str(error), 1)",
        "input(f'{x}?')",
        "from rich.console import Console",
        "from rich.markup import escape",
        "Text.from_markup(x)",
        "Text(x)",
        "Live(x)",
        "from cluster.logs.terminal import say\nwith a as say:\n    say(x)",
        "logging.Formatter('%(message)s')",
    ],
)
def test_the_rule_sees(code: str) -> None:
    assert list(ways_around(Path("deploy/some.py"), ast.parse(code)))
