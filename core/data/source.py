"""Kinds of recordings, where recordings are looked for, and of which kind they are.

A kind is one module, which says how it is recognized and reads it: a set in a folder or zip
(`marker`), one file (`suffix`), what a person names (`recognizes`), or none of these: then it is
made here, not read.
"""

import os
import zipfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from core.data.archive import RESOURCE_FORKS, ZIP, FileTree, tree_of, tree_of_zip
from core.data.batch import Examples
from core.data.dataset import CLASSES, DTYPES, MANIFEST, SUBJECTS, WINDOWS
from core.data.recordings import Cutting, Recordings, Report
from core.ground import gone
from core.ground.errors import DataError
from core.ground.registry import Registry


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

        `opened` is the FileTree of a set, the Path of a file or folder, None otherwise.

        Raises DataError, also while the batches of examples are drawn.
        """


READERS: Registry[Reader] = Registry("kind of recordings", "core.data", Reader)  # type: ignore[type-abstract]


def open_set(path: Path) -> tuple[str, FileTree] | None:
    """Return the kind and files of the set in a folder or zip; None for an unknown one.

    The files are seen from the set's own root.

    A zip may hold the set below a folder, or as the one zip inside it, as the UCI repository serves
    some today. Raises DataError as `tree_of` does.
    """
    tree = tree_of(path)
    kind_and_tree = _set_in(tree, is_deep=not path.is_dir())
    inner = [
        member
        for name, member in tree.members.items()
        if name.lower().endswith(ZIP) and not name.startswith(RESOURCE_FORKS)
    ]
    if kind_and_tree is None and not path.is_dir() and len(inner) == 1:
        return _set_in(tree_of_zip(inner[0]), is_deep=True)
    return kind_and_tree


def kind_of_folder(folder: Path) -> str | None:
    """The kind of set in a folder itself, without a walk through it."""
    return next((kind for kind, marker in _markers() if (folder / marker).is_dir()), None)


def _markers() -> list[tuple[str, str]]:
    return [(kind, reader.marker) for kind, reader in READERS.items() if reader.marker is not None]


def _set_in(tree: FileTree, *, is_deep: bool) -> tuple[str, FileTree] | None:
    """Return the kind and files of the set at the root, or also below it where `is_deep`."""
    for kind, marker in _markers():
        for name in tree.names():
            before, separator, _ = f"/{name}".partition(f"/{marker}")
            if separator and not name.startswith(RESOURCE_FORKS) and (is_deep or not before):
                return kind, tree.below(f"{before}/"[1:])
    return None


PROJECT_ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds `cluster/`; `../shared/data` is beside it."""

ENVIRONMENT = "PSCLUSTER_DATA"
SHARED = Path("..") / "shared" / "data"
"""Folder relative to the project's root."""
PREPARED = "prepared"
SYNTHETIC = "synthetic"
DESCRIBED = "described"
SETS = "sets"
"""Kinds that no search finds by name: a folder that `prepare` wrote, the fallback, and files that a
format describes."""
FORMATS: Mapping[str, str] = {"hapt": "hapt", "hhar": "hhar-as-recorded"}
"""Name of the format by kind, where a format of ours describes it."""

FOREIGN = Path(__file__).with_name("foreign.yaml")
"""Sentences on files that no reader takes, by their endings."""
LOOKED_AT = 1000
"""Most entries of a folder that are looked at for such files."""


@dataclass(frozen=True)
class Source:
    """Recordings to train on: their kind, and `path` (None for synthetic ones).

    The choice is explained in one line.
    """

    kind: str
    path: Path | None
    why: str


def find_source(
    source: str | None,
    environ: Mapping[str, str],
    project_root: Path,
    user_cache: Path,
    format_name: str | None = None,
) -> Source:
    """The recordings to use, from the first place that has some.

    They are `source` (a path or 'synthetic'), $PSCLUSTER_DATA, ../shared/data beside the project,
    the user's cache folder, the built-in synthetic recordings. The first two are the user's own
    words: nothing usable there is a DataError. The next two are passed over when they hold nothing,
    but a damaged set in them is an error too: training on something else would look like success.
    With the name of a format the first two alone count, and are what it describes.
    """
    for text, origin in ((source, "as asked"), (environ.get(ENVIRONMENT), f"${ENVIRONMENT}")):
        if text == SYNTHETIC:
            return Source(SYNTHETIC, None, f"synthetic recordings ({origin})")
        if text:
            path = Path(os.path.expanduser(text))
            if format_name is not None and path.exists() and not is_prepared(path):
                return Source(DESCRIBED, path, why=f"{path} ({origin}, format {format_name})")
            kind_and_path = _recordings_in(path, is_named=True)
            if kind_and_path is None:
                raise DataError(f"{path}: {_refusal(path, origin)}")
            return Source(*kind_and_path, why=f"{kind_and_path[1]} ({origin})")
    if format_name is not None:
        raise DataError(
            f"jobs.train.data.format: {format_name:.60} describes recordings, and none are named;"
            f" name them with --data or ${ENVIRONMENT}"
        )
    shared = (project_root / SHARED).resolve()
    for folder in (shared, user_cache):
        kind_and_path = _recordings_in(folder)
        if kind_and_path is not None:
            return Source(*kind_and_path, why=f"{kind_and_path[1]} (found in {folder})")
    looked = f"no recordings given, none in {shared} or {user_cache}"
    return Source(
        SYNTHETIC, None, f"synthetic recordings ({looked}; --data or ${ENVIRONMENT} names your own)"
    )


def is_prepared(folder: Path) -> bool:
    """Whether a folder looks like a prepared data set; `open_prepared` checks its content."""
    names = (WINDOWS, CLASSES, SUBJECTS, *(f"inputs.{dtype}" for dtype in DTYPES))
    return (folder / MANIFEST).is_file() and any((folder / name).exists() for name in names)


def _accepted() -> str:
    *sets, synthetic = (reader.accepted for reader in READERS.values())
    return f"{', '.join(sets)}, a prepared folder, or {synthetic}"


def _recordings_in(path: Path, *, is_named: bool = False) -> tuple[str, Path] | None:
    """Return the kind and the path of recordings, None where there are none. Raises DataError.

    Any folder may hold files that a reader `recognizes`; a person who names them means them.
    """
    try:
        if is_prepared(path):
            return PREPARED, path
        for candidate in _candidates(path):
            if candidate.is_dir():
                kind = kind_of_folder(candidate)
            else:
                kind = _kind_of_file(candidate)
            if kind:
                return kind, candidate
        for kind, reader in READERS.items():
            if is_named and path.exists() and reader.recognizes(path):
                return kind, path
    except (OSError, ValueError) as problem:
        raise DataError(
            f"{path}: cannot be searched for recordings ({problem}); check the path and its"
            " permissions"
        ) from None
    return None


def _candidates(folder: Path) -> Iterator[Path]:
    if folder.is_dir() or folder.is_file():
        yield folder
    if not folder.is_dir():
        return
    below = sorted(
        path for path in folder.iterdir() if path.is_dir() and os.access(path, os.R_OK | os.X_OK)
    )
    names = [name for reader in READERS.values() for name in reader.usual_names]
    for parent in (folder, *below):
        yield from (parent / name for name in names if (parent / name).exists())
    yield from below
    suffixes = {".zip", *(reader.suffix for reader in READERS.values())}
    for parent in (folder, *below):
        yield from sorted(
            path for path in parent.iterdir() if path.suffix in suffixes and path.is_file()
        )


def _kind_of_file(path: Path) -> str | None:
    for kind, reader in READERS.items():
        if path.suffix.lower() == reader.suffix or (
            reader.marker is None and path.name in reader.usual_names
        ):
            return kind
    if path.suffix.lower() != ".zip":
        return None
    kind_and_tree = open_set(path)
    if kind_and_tree:
        return kind_and_tree[0]
    return None


def _refusal(path: Path, origin: str) -> str:
    """Say what is wrong with a path, and how the files that most of it are can be brought."""
    import yaml  # not where a node only recognises

    remedies = {
        f".{ending}": sentence.format_map(gone.KINDS)
        for endings, sentence in yaml.safe_load(FOREIGN.read_text(encoding="utf-8")).items()
        for ending in endings.split()
    }
    names = {name: Path(name).suffix.lower() for name in _names(path)}
    for ending, _ in Counter(names.values()).most_common():
        if ending in remedies:
            name = next(name for name in names if names[name] == ending)
            return f"{_problem(path)}; {origin}, {name} is {remedies[ending]}"
    if path.is_file():
        remedy = "; bring others as windows in an .npz (docs/data.md)"
    else:
        remedy = ""
    return f"{_problem(path)}; {origin}, expected {_accepted()}{remedy}"


def _names(path: Path) -> Iterator[str]:
    """Yield the names of some of the files of a path, or of those in a zip."""
    if path.is_dir():
        yield from (file.name for file in islice(path.rglob("*"), LOOKED_AT) if file.is_file())
    elif path.suffix.lower() == ".zip" and path.is_file() and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield from (Path(name).name for name in islice(archive.namelist(), LOOKED_AT))
    elif path.exists():
        yield path.name


def _problem(path: Path) -> str:
    if not path.exists():
        return "no such file or folder"
    if path.is_dir():
        return "holds no recordings of a known kind"
    return "not a recording of a known kind"
