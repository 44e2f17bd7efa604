"""The product's modules as syntax trees, read once for all rules about them."""

import ast
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
ROOMS = ("cluster", "core", "deploy", "ps_node", "recognise", "worker_node")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def modules(*rooms: str) -> dict[str, ast.Module]:
    """The trees of these rooms, of all without any, by path in the project."""
    return {
        path.relative_to(PROJECT).as_posix(): tree_of(path)
        for room in rooms or ROOMS
        for path in sorted((PROJECT / room).rglob("*.py"))
    }


def imports(node: ast.AST) -> list[str]:
    """What an import statement names, with its module."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module, names=names):
            return [f"{module}.{alias.name}" for alias in names]
    return []
