"""A device has its full name: inside a lane, which lies in a worker's scope, a short one means the worker's device.

Measured before this was a rule: every argument was sent by a call of its own, and a worker grew by 3 KB with each.
"""

import ast

from tests.habits.leaks import PROJECT

PRODUCT = ("cluster", "deploy", "ps_node", "recognise", "worker_node")


def short_names(source: str) -> list[str]:
    """Literals that name a device without its job and task."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value.casefold()
            if text.startswith(("cpu:", "gpu:", "/cpu:", "/gpu:", "/device:")):
                found.append(node.value)
    return found


def test_no_literal_of_the_product_is_a_short_device_name() -> None:
    modules = [path for room in PRODUCT for path in (PROJECT / room).rglob("*.py")]
    found = {str(path.relative_to(PROJECT)): short_names(path.read_text(encoding="utf-8")) for path in modules}
    # Two f-strings begin with the job; their ends are literals of their own. The others read or show a name.
    allowed = {
        "cluster/engine/runtime.py": ["/device:", "/device:CPU:0"],
        "cluster/engine/devices.py": ["/device:"],
        "cluster/jobs/busy.py": [
            "gpu:", "gpu:%d: how busy it is stays unknown: %s", "gpu:", "gpu:", "/device:", "cpu:0",
        ],
        "cluster/metrics/standard.py": ["gpu:"],
    }  # fmt: skip
    assert {path: names for path, names in found.items() if names} == allowed


def test_the_rule_sees_what_stood_in_the_lanes() -> None:
    assert short_names('with tf.device("CPU:0"): pass') == ["CPU:0"]
    assert short_names('tf.device("/cpu:0")') == ["/cpu:0"]
    assert short_names('tf.device("/job:ps/replica:0/task:0/device:CPU:0")') == []


def test_the_device_of_every_scope_is_a_name_that_was_made_in_full() -> None:
    """`tf.device(...)` is given a variable, an attribute or a call of `device`/`here`, never a literal."""
    for room in PRODUCT:
        for path in (PROJECT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "tf.device":
                    assert not isinstance(node.args[0], ast.Constant), f"{path}:{node.lineno}"
