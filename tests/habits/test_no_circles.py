"""The modules of each package import one another in one direction, inside functions too.

import-linter compares rooms; this compares modules.
"""

from graphlib import TopologicalSorter

import grimp
import pytest

pytestmark = pytest.mark.sources

PACKAGES = ("core", "ps_node", "worker_node", "recognise", "cluster", "deploy", "pscluster")


def test_no_modules_import_one_another_in_a_circle() -> None:
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    assert "deploy.commands.clusters" in graph.find_modules_directly_imported_by(
        "deploy.commands.opening"
    ), "imports inside functions are seen"
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    TopologicalSorter(imports).prepare()  # CycleError names the modules of a circle
