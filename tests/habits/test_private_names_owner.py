"""TensorFlow's private names change without notice: one module owns them, so that one module
breaks."""

import ast

import pytest

from tests.habits.sources import imports, modules

pytestmark = pytest.mark.sources

PRIVATE = ("tensorflow.python.", "tensorflow.core.")


def test_one_module_owns_tensorflows_private_names() -> None:
    users = {
        path
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if any(f"{name}.".startswith(PRIVATE) for name in imports(node))
    }
    assert users == {"core/engine/runtime.py"}
