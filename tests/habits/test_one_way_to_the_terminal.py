"""What a person is shown goes through `core/logs/__init__.py` or `screen.py`, which make foreign
text harmless."""

import ast
from collections.abc import Iterator

import pytest

from tests.deploy.tables import Tables
from tests.habits.sources import imports, modules

rows = Tables(__file__)

pytestmark = pytest.mark.sources

TERMINAL = "core/logs/__init__.py"
SCREEN = "core/logs/screen.py"
RICH = ("console.Console", "text.Text", "markup", "status", "print", "prompt")
OF_RICH = tuple(f"rich.{name}." for name in RICH)
STREAMS = (".stdout.write", ".stderr.write", ".stdout.buffer.write", ".stderr.buffer.write")
ON_A_NODE = ("deploy/rooted/",)
"""Programs of a node, without `core.logs`; what they print comes to `fab` over SSH, and is foreign
there."""
MAY_READ_THE_TYPE = ("cluster/jobs/progress.py", "rich.text.Text")
"""Where a type of rich is named in a signature and made by `words`."""


def ways_around(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, what) of everything that reaches a terminal by another way."""
    ours = any("core.logs.say" in imports(node) for node in ast.walk(tree))
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg="say") | ast.Name(id="say", ctx=ast.Store()) if ours:
                yield node.lineno, "another say hides core.logs.say"
            case ast.Call():
                if what := wrong_call(path, node):
                    yield node.lineno, f"{ast.unparse(node.func)}(): {what}"
            case ast.Import() | ast.ImportFrom() if path != SCREEN:
                for name in imports(node):
                    if f"{name}.".startswith(OF_RICH) and (path, name) != MAY_READ_THE_TYPE:
                        yield node.lineno, f"{name}: use core.logs.screen"


def wrong_call(path: str, call: ast.Call) -> str:
    """What is wrong with the call of a function; empty where nothing is."""
    name = ast.unparse(call.func)
    last = name.rpartition(".")[2]
    match call.args:
        case [] | [ast.Constant(), *_] | [ast.Call(func=ast.Name(id="visible")), *_]:
            harmless = True
        case _:
            harmless = False
    if name == "print" and path != TERMINAL:
        return "use say() or say_json()"
    if name.endswith(STREAMS):
        return "use say()"
    if name in ("input", "Exit") and not harmless:
        return "its text is not made visible()"
    if last in ("from_markup", "from_ansi", "render_markup"):
        return "markup in a text"
    if last in ("Live", "Status", "Progress") and not any(
        given.arg == "console" for given in call.keywords
    ):
        return "give it a Screen as its console"
    if name == "logging.Formatter":
        return "use a formatter of core.logs"
    if last == "Text" and path != SCREEN and call.args:
        return "use words() or coloured()"
    return ""


def test_nothing_else_reaches_the_terminal() -> None:
    found = [
        (path, *way)
        for path, tree in modules().items()
        if not path.startswith(ON_A_NODE)
        for way in ways_around(path, tree)
    ]
    assert not found


@rows("code")
def test_the_rule_sees(code: str) -> None:
    assert list(ways_around("deploy/some.py", ast.parse(code)))
