"""TensorFlow's private names change without notice: one module owns them, so that one module breaks."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.habits.leaks import PROJECT

PRODUCT = ("cluster", "deploy", "ps_node", "recognise", "worker_node")
OWNER = "cluster/engine/runtime.py"


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


def test_one_module_owns_tensorflows_private_names() -> None:
    modules = [path for room in PRODUCT for path in (PROJECT / room).rglob("*.py")]
    users = {
        str(path.relative_to(PROJECT))
        for path in modules
        if any(name.startswith(("tensorflow.python", "tensorflow.core")) for name in imported(path))
    }
    assert users == {OWNER}
