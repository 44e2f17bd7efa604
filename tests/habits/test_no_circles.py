"""The modules of each package import one another in one direction, inside functions too.

import-linter compares rooms; this compares modules.
"""

from collections.abc import Mapping, Set
from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

pytestmark = pytest.mark.sources

PACKAGES = ("core", "ps_node", "worker_node", "recognise", "cluster", "deploy", "pscluster")


def circle(imports: Mapping[str, Set[str]]) -> list[str]:
    """The modules of one circle; empty without one."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def test_no_modules_import_one_another_in_a_circle() -> None:
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    assert {
        "deploy.commands.views",
        "deploy.commands.opened",
    } <= graph.find_modules_directly_imported_by("deploy.commands.opening"), (
        "imports inside functions are seen"
    )
    assert not circle(
        {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    )


@pytest.mark.parametrize(
    "imports", [{"a": {"b"}, "b": {"a"}}, {"a": {"b"}, "b": {"c"}, "c": {"a"}}]
)
def test_a_circle_is_found(imports: dict[str, set[str]]) -> None:
    assert set(circle(imports)) == set(imports)
