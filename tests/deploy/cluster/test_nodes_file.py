"""The nodes that a deployment remembers, in a file that may be damaged."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deploy.cluster.cluster import ManagedCluster


def cluster_in(folder: Path) -> ManagedCluster:
    """A cluster of one node, whose files are in this folder."""
    nodes = (SimpleNamespace(name="here"),)
    inventory: Any = SimpleNamespace(path=folder / "inventory.yaml", cluster="lab", nodes=nodes)
    nothing: Any = None
    made = ManagedCluster(inventory, (), nothing, nothing)
    made.folder.path.mkdir(0o700, parents=True)
    return made


@pytest.mark.parametrize(
    ("content", "gone"),
    [
        ('["here", "away"]', ("away",)),
        ("5", ()),
        ('"away"', ()),
        ('{"away": 1}', ()),
        ('[1, null, ["x"], "away"]', ("away",)),
        ('["away"', ()),
        ("", ()),
    ],
)
def test_a_damaged_file_names_no_node_and_is_written_again(
    tmp_path: Path, content: str, gone: tuple[str, ...]
) -> None:
    made = cluster_in(tmp_path)
    assert made.nodes_gone() == ()
    (made.folder.path / "nodes.json").write_text(content)
    assert made.nodes_gone() == gone
    made.remember_nodes()
    assert made.nodes_gone() == gone
    made.forget_nodes(gone)
    assert made.nodes_gone() == ()
