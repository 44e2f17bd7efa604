"""Files of tests, an app among them, and the inventory of one machine."""

from collections.abc import Mapping
from pathlib import Path

from core.inventory import Inventory, load

ONE_NODE = (
    "schema: 1\ncluster: here\nnodes: [{name: pi, address: 127.0.0.1, roles: [ps, worker,"
    " coordinator]}]\n"
)


def write_tree(folder: Path, files: Mapping[str, str]) -> Path:
    """Write these texts by their paths; return the folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def write_app(folder: Path, entry: str, blocks: str = "width = 8\n") -> Path:
    """Write the app `digits` of two files, which no test runs, into the folder; its path."""
    return write_tree(folder / "digits", {"app.py": entry, "parts/blocks.py": blocks})


def one_node(folder: Path, *overrides: str) -> Inventory:
    """The inventory of one machine, in this folder."""
    write_tree(folder, {"inventory.yaml": ONE_NODE})
    return load(folder / "inventory.yaml", overrides)
