"""Which published set a zip or folder holds, and where in it the set begins."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from cluster.data.archive import FolderTree, ZipTree, open_tree, open_zip

Layout = Literal["hapt", "uci-har"]

MARKERS: tuple[tuple[Layout, str], ...] = (("hapt", "RawData/"), ("uci-har", "train/Inertial Signals/"))
"""The folder inside a set that tells which one it is."""
RESOURCE_FORKS = "__MACOSX/"
"""What macOS adds to the zips it makes: companions of every file, under the same names."""


@contextmanager
def open_set(path: Path) -> Iterator[tuple[Layout, FolderTree | ZipTree] | None]:
    """The set in a folder or zip, seen from the set's own root; None when it is no known one.

    A zip may hold the set below a folder, or as the one zip inside it, as the UCI repository serves some today.
    Raises DataError as `open_tree` does.
    """
    with open_tree(path) as tree:
        found = _find(tree)
        inner = [name for name in tree.names() if name.lower().endswith(".zip") and not name.startswith(RESOURCE_FORKS)]
        if found or isinstance(tree, FolderTree) or len(inner) != 1:
            yield found
            return
        where = f"{path}: {inner[0]}"
        with open_zip(io.BytesIO(tree.read(inner[0])), where) as nested:
            yield _find(ZipTree(nested, where))


def layout_of_folder(folder: Path) -> Layout | None:
    """Which set lies in a folder itself, without walking through it."""
    return next((layout for layout, marker in MARKERS if (folder / marker).is_dir()), None)


def _find(tree: FolderTree | ZipTree) -> tuple[Layout, FolderTree | ZipTree] | None:
    for layout, marker in MARKERS:
        for name in tree.names():
            before, found, _ = f"/{name}".partition(f"/{marker}")
            if not found or name.startswith(RESOURCE_FORKS):
                continue
            if not before:
                return layout, tree
            if isinstance(tree, ZipTree):
                return layout, tree.below(f"{before[1:]}/")
    return None
