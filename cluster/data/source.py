"""Where recordings are looked for, and of which known kind they are."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster.data.dataset import is_prepared
from cluster.data.reader import READERS, kind_of_folder, open_set
from cluster.errors import DataError

PROJECT_ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds `cluster/`; `../shared/data` is beside it."""

ENVIRONMENT = "PSCLUSTER_DATA"
SHARED = Path("..") / "shared" / "data"
"""Relative to the project's root."""
PREPARED, SYNTHETIC = "prepared", "synthetic"
"""Kinds that no search finds by name: a folder that `prepare` wrote, and the fallback."""


@dataclass(frozen=True)
class Source:
    """Recordings to train on: their kind, `path` (None for synthetic ones), and the choice explained in one line."""

    kind: str
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
        if text == SYNTHETIC:
            return Source(SYNTHETIC, None, f"synthetic recordings ({origin})")
        if text:
            path = Path(os.path.expanduser(text))
            found = _look(path) or _recognized(path)
            if found is None:
                raise DataError(f"{path}: {_problem(path)}; {origin}, expected {_accepted()}")
            return Source(*found, why=f"{found[1]} ({origin})")
    shared = (project_root / SHARED).resolve()
    for folder in (shared, user_cache):
        found = _look(folder)
        if found is not None:
            return Source(*found, why=f"{found[1]} (found in {folder})")
    looked = f"no recordings given, none in {shared} or {user_cache}"
    return Source(SYNTHETIC, None, f"synthetic recordings ({looked}; --data or ${ENVIRONMENT} names your own)")


def _accepted() -> str:
    *sets, synthetic = (found.accepted for found in READERS.values())
    return f"{', '.join(sets)}, a prepared folder, or {synthetic}"


def _look(path: Path) -> tuple[str, Path] | None:
    try:
        if not path.is_dir():
            kind = _kind_of_file(path) if path.is_file() else None
            return (kind, path) if kind else None
        if is_prepared(path):
            return PREPARED, path
        for candidate in _candidates(path):
            kind = kind_of_folder(candidate) if candidate.is_dir() else _kind_of_file(candidate)
            if kind:
                return kind, candidate
    except (OSError, ValueError) as problem:
        raise DataError(
            f"{path}: cannot be searched for recordings ({problem}); check the path and its permissions"
        ) from None
    return None


def _recognized(path: Path) -> tuple[str, Path] | None:
    """What no search may take for recordings, because any folder may hold it, and what a person means who names it."""
    try:
        kinds = [kind for kind, reader in READERS.items() if path.exists() and reader.recognizes(path)]
    except OSError as problem:
        raise DataError(f"{path}: cannot be read ({problem.strerror}); check the path and its permissions") from None
    return (kinds[0], path) if kinds else None


def _candidates(folder: Path) -> Iterator[Path]:
    yield folder
    below = sorted(path for path in folder.iterdir() if path.is_dir() and os.access(path, os.R_OK | os.X_OK))
    names = [name for found in READERS.values() for name in found.usual_names]
    for parent in (folder, *below):
        yield from (parent / name for name in names if (parent / name).exists())
    yield from below
    suffixes = {".zip", *(found.suffix for found in READERS.values())}
    for parent in (folder, *below):
        yield from sorted(path for path in parent.iterdir() if path.suffix in suffixes and path.is_file())


def _kind_of_file(path: Path) -> str | None:
    for kind, reader in READERS.items():
        if path.suffix.lower() == reader.suffix or (reader.marker is None and path.name in reader.usual_names):
            return kind
    if path.suffix.lower() != ".zip":
        return None
    with open_set(path) as found:
        return found[0] if found else None


def _problem(path: Path) -> str:
    if not path.exists():
        return "no such file or folder"
    return "holds no recordings of a known kind" if path.is_dir() else "not a recording of a known kind"
