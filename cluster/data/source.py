"""Where recordings are looked for, and which of the known kinds lies there."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cluster.data.dataset import is_prepared
from cluster.data.layout import layout_of_folder, open_set
from cluster.errors import DataError

Kind = Literal["hapt", "uci-har", "npz", "prepared", "synthetic"]

ENVIRONMENT = "PSCLUSTER_DATA"
SHARED = Path("..") / "shared" / "data"
"""Relative to the project's root."""
KNOWN_NAMES = ("HAPT Data Set.zip", "HAPT Data Set", "UCI HAR Dataset.zip", "UCI HAR Dataset")
ACCEPTED = (
    "the HAPT or the UCI HAR set as a zip or folder, an .npz with x_train, y_train, x_test and y_test, a prepared "
    "folder, or 'synthetic'"
)


@dataclass(frozen=True)
class Source:
    """Recordings to train on. `path` is None for synthetic ones; `why` is one line that says which and why."""

    kind: Kind
    path: Path | None
    why: str


def find_source(given: str | None, environ: Mapping[str, str], project_root: Path, user_cache: Path) -> Source:
    """The recordings to use, from the first place that has some.

    The places: `given` (a path or 'synthetic'), $PSCLUSTER_DATA, ../shared/data beside the project, the user's cache
    folder, the built-in synthetic recordings. The first two are the user's own words: nothing usable there is a
    DataError. The next two are passed over when they hold nothing, but a damaged set in them is an error too:
    training on something else would look like success.
    """
    for text, origin in ((given, "as asked"), (environ.get(ENVIRONMENT), f"${ENVIRONMENT}")):
        if text == "synthetic":
            return Source("synthetic", None, f"synthetic recordings ({origin})")
        if text:
            path = Path(os.path.expanduser(text))
            found = _look(path)
            if found is None:
                raise DataError(f"{path}: {_problem(path)}; {origin}, expected {ACCEPTED}")
            return Source(*found, why=f"{found[1]} ({origin})")
    shared = (project_root / SHARED).resolve()
    for folder in (shared, user_cache):
        found = _look(folder)
        if found is not None:
            return Source(*found, why=f"{found[1]} (found in {folder})")
    looked = f"no recordings given, none in {shared} or {user_cache}"
    return Source("synthetic", None, f"synthetic recordings ({looked}; --data or ${ENVIRONMENT} names your own)")


def _look(path: Path) -> tuple[Kind, Path] | None:
    try:
        if not path.is_dir():
            kind = _kind_of_file(path) if path.is_file() else None
            return (kind, path) if kind else None
        if is_prepared(path):
            return "prepared", path
        for candidate in _candidates(path):
            kind = layout_of_folder(candidate) if candidate.is_dir() else _kind_of_file(candidate)
            if kind:
                return kind, candidate
    except (OSError, ValueError) as problem:
        raise DataError(
            f"{path}: cannot be searched for recordings ({problem}); check the path and its permissions"
        ) from None
    return None


def _candidates(folder: Path) -> Iterator[Path]:
    yield folder
    below = sorted(path for path in folder.iterdir() if path.is_dir() and os.access(path, os.R_OK | os.X_OK))
    for parent in (folder, *below):
        yield from (parent / name for name in KNOWN_NAMES if (parent / name).exists())
    yield from below
    for parent in (folder, *below):
        yield from sorted(path for path in parent.iterdir() if path.suffix in (".zip", ".npz") and path.is_file())


def _kind_of_file(path: Path) -> Kind | None:
    if path.suffix.lower() == ".npz":
        return "npz"
    if path.suffix.lower() != ".zip":
        return None
    with open_set(path) as found:
        return found[0] if found else None


def _problem(path: Path) -> str:
    if not path.exists():
        return "no such file or folder"
    return "holds no recordings of a known kind" if path.is_dir() else "not a recording of a known kind"
