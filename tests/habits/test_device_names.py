"""A device has its full name: inside a lane, which lies in a worker's scope, a short one means the
worker's device.

Measured before this was a rule: every argument was sent by a call of its own, and a worker grew by
3 KB with each.
"""

import ast

import pytest

from tests.deploy.tables import Tables
from tests.habits.sources import modules

rows = Tables(__file__)

pytestmark = pytest.mark.sources

SHORT = ("cpu:", "gpu:", "/cpu:", "/gpu:", "/device:")
ALLOWED = {
    "core/engine/runtime.py": ["/device:", "/device:CPU:0"],
    "core/engine/devices.py": ["/device:"],
    "cluster/jobs/busy.py": [
        "gpu:",
        "gpu:%d: how busy it is stays unknown: %s",
        "gpu:",
        "gpu:",
        "cpu:0",
        "/device:",
    ],
    "core/metrics/standard.py": ["gpu:"],
}
"""The ends of two f-strings that begin with the job; the others read or show a name. So the rule is
seen to find what it looks for."""


def short_names(tree: ast.Module) -> list[str]:
    """Literals that name a device without its job and task."""
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.casefold().startswith(SHORT)
    ]


def test_no_literal_of_the_product_is_a_short_device_name() -> None:
    found = {path: short_names(tree) for path, tree in modules().items()}
    assert {path: names for path, names in found.items() if names} == ALLOWED


def test_the_device_of_every_scope_is_a_name_that_was_made_in_full() -> None:
    """`tf.device(...)` is given a variable, an attribute or a call of `device`/`here`, never a
    literal."""
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "tf.device":
                assert not isinstance(node.args[0], ast.Constant), f"{path}:{node.lineno}"
