"""Local and SSH are one program: one function of `deploy/` asks an inventory for its kind of
connection.

`cluster/` asks one property of the inventory, which names the consequence.
"""

import ast
from collections.abc import Iterator

import pytest

from tests.habits.sources import modules

pytestmark = pytest.mark.sources

ASKS = ("deploy/commands/opening.py", "open_cluster")
KINDS = frozenset(["Machines", "ThisMachine", "Systemd", "Supervised", "SubmittedJobs"])
KINDS |= frozenset(["ForegroundJobs", "Local", "NodeConnection"])


def questions(tree: ast.AST, function: str = "") -> Iterator[tuple[str, int]]:
    """The function and line of each expression that depends on the kind of a cluster."""
    for node in ast.iter_child_nodes(tree):
        inside = node.name if isinstance(node, ast.FunctionDef) else function
        match node:
            case ast.Attribute(attr="connection" | "is_local") | ast.Name(id="over_ssh"):
                yield inside, node.lineno
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
                if KINDS & {name.id for name in ast.walk(kinds) if isinstance(name, ast.Name)}:
                    yield inside, node.lineno
            case ast.MatchClass(cls=ast.Name(id=name)) if name in KINDS:
                yield inside, node.cls.lineno
            case ast.Call(
                func=ast.Name(id="getattr"), args=[_, ast.Constant(value="connection"), *_]
            ):
                yield inside, node.lineno
        yield from questions(node, inside)


def asking(room: str) -> dict[tuple[str, str], int]:
    """Line of a question by file and function of the room."""
    return {
        (path, function): line
        for path, tree in modules(room).items()
        for function, line in questions(tree)
    }


def test_nothing_else_asks_for_the_kind_of_a_cluster() -> None:
    found = asking("deploy")
    del found["deploy/commands/clusters.py", "__init__"]  # it makes one kind for `open_cluster`
    assert set(found) == {ASKS}, found
    one_host = [
        path
        for path, tree in modules("deploy").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "one_host"
    ]
    assert one_host == []


@pytest.mark.parametrize("room", ["cluster", "core", "ps_node", "worker_node"])
def test_what_runs_asks_the_inventory_whether_it_has_one_host(room: str) -> None:
    own = {("core/inventory/schema.py", "one_host")}
    assert set(asking(room)) == (own if room == "core" else set())


def test_the_questions_are_found() -> None:
    text = """
def one(inventory): return 1 if inventory.connection == "ssh" else 2
def two(jobs): return isinstance(jobs, (int, SubmittedJobs))
def three(cluster):
    match cluster:
        case Supervised(): return 1
def four(inventory): return {"ssh": 1}[getattr(inventory, "connection")]
def five(connection): return connection.run
"""
    assert [name for name, _ in questions(ast.parse(text))] == ["one", "two", "three", "four"]
