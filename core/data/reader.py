"""Kinds of recordings: one module each, which says how the kind is recognized and reads it.

A kind is a set in a folder or zip (`marker`), one file (`suffix`), what a person names
(`recognizes`), or none of these: then it is made here, not read.
"""

import io
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from core.data.archive import FolderTree, Tree, ZipTree, open_tree, open_zip
from core.data.batch import Examples
from core.data.recordings import Cutting, Recordings, Report
from core.ground.registry import Registry

RESOURCE_FORKS = "__MACOSX/"
"""Folder that macOS adds to its zips: companions of every file, under the same names."""


class Reader(ABC):
    """A kind of recordings. Every kind states every fact itself."""

    name: ClassVar[str]
    accepted: ClassVar[str]
    """Words that complete "expected ..." in messages."""
    is_what: ClassVar[str]
    """Cell of the documentation's table: what the kind is."""
    windows_are_cut: ClassVar[str]
    """Cell of the documentation's table: where and how windows are cut."""
    marker: ClassVar[str | None]
    """The folder inside a set that identifies it, with a slash at its end."""
    suffix: ClassVar[str | None]
    """Ending of the name of a file of this kind."""
    usual_names: ClassVar[tuple[str, ...]]
    """File and folder names to try first in a folder."""
    settings: ClassVar[tuple[str, ...]]
    """The fields of Cutting that decide the result."""

    @staticmethod
    def deciding_files(names: Sequence[str]) -> tuple[str, ...]:
        """The files that decide the result, of all names in a set."""
        return tuple(names)

    @staticmethod
    def recognizes(path: Path) -> bool:
        """Return whether a file or folder that a person named is of this kind.

        No search through folders asks this.
        """
        return False

    @staticmethod
    @abstractmethod
    def read(opened: Any, cutting: Cutting, report: Report, /) -> "Recordings | Examples":
        """Return the windows or examples in `opened`.

        `opened` is a Tree of a set or folder, the Path of a file, None otherwise.

        Raises DataError, also while the batches of examples are drawn.
        """


READERS: Registry[Reader] = Registry("kind of recordings", "core.data", Reader)  # type: ignore[type-abstract]


@contextmanager
def open_set(path: Path) -> Iterator[tuple[str, Tree] | None]:
    """Return the kind and files of the set in a folder or zip; None for an unknown one.

    The files are seen from the set's own root.

    A zip may hold the set below a folder, or as the one zip inside it, as the UCI repository serves
    some today. Raises DataError as `open_tree` does.
    """
    with open_tree(path) as tree:
        kind_and_tree = _set_in(tree)
        inner = [
            name
            for name in tree.names()
            if name.lower().endswith(".zip") and not name.startswith(RESOURCE_FORKS)
        ]
        if kind_and_tree or isinstance(tree, FolderTree) or len(inner) != 1:
            yield kind_and_tree
            return
        where = f"{path}: {inner[0]}"
        with open_zip(io.BytesIO(tree.read(inner[0])), where) as nested:
            yield _set_in(ZipTree(nested, where))


def kind_of_folder(folder: Path) -> str | None:
    """The kind of set in a folder itself, without a walk through it."""
    return next((kind for kind, marker in _markers() if (folder / marker).is_dir()), None)


def _markers() -> list[tuple[str, str]]:
    return [(kind, reader.marker) for kind, reader in READERS.items() if reader.marker is not None]


def _set_in(tree: Tree) -> tuple[str, Tree] | None:
    for kind, marker in _markers():
        for name in tree.names():
            before, separator, _ = f"/{name}".partition(f"/{marker}")
            if not separator or name.startswith(RESOURCE_FORKS):
                continue
            if not before:
                return kind, tree
            if isinstance(tree, ZipTree):
                return kind, tree.below(f"{before[1:]}/")
    return None
